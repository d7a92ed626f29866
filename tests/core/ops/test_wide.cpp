// Beyond 2^31 elements: shapes, prices and offsets without storage, and the reference arithmetic's
// addresses in memory that is mapped but never filled.

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "core/base/error.h"
#include "core/ops/dispatch.h"
#include "core/ops/embedding.h"
#include "core/ops/gemm.h"
#include "core/ops/isa.h"
#include "core/ops/table.h"
#include "tests/core/ops/phantom.h"

namespace moetwin {
namespace {

using test::kernels_of;
using test::phantom;

/// Zero bytes that cost nothing until they are written.
class Mapped {
 public:
  explicit Mapped(int64_t bytes)
      : bytes_(static_cast<size_t>(bytes)),
        data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    REQUIRE(data_ != MAP_FAILED);
  }
  ~Mapped() { munmap(data_, bytes_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  size_t bytes_;
  void* data_;
};

void run(const OpCall& call, std::initializer_list<void*> data) {
  for (Isa isa : {Isa::x86_64, Isa::x86_64_v3, Isa::x86_64_v4}) {
    if (!isa_supported(isa)) continue;
    ReferenceCall r;
    r.op = call.op;
    int i = 0;
    for (void* p : data) {
      r.tensors[static_cast<size_t>(i)] = {p, call[i].shape, call[i].dtype};
      ++i;
    }
    r.attributes = call.attributes;
    r.sizes = call.sizes;
    reference_of(*call.op, isa)(r);
  }
}

}  // namespace

TEST_CASE("elements and offsets of permuted tokens pass 2^31", "[P068][P070][P071]") {
  struct Case {
    int64_t h, k, t, elements;
  };
  for (const Case& c : {Case{7168, 8, 37449, 2147475456}, Case{7168, 8, 37450, 2147532800},
                        Case{4096, 2, 262144, 2147483648}, Case{4096, 2, 262145, 2147491840},
                        Case{2048, 1, 1079839, 2211510272}}) {
    const Tensor y = phantom({c.t * c.k, c.h}, DType::bf16);
    CHECK(y.elements() == c.elements);
    CHECK(y.bytes() == 2 * c.elements);
    CHECK(y.rows(c.t * c.k - 1, 1).offset == c.elements - c.h);
    const OpCall call = permute(phantom({c.t, c.h}, DType::bf16), phantom({c.t * c.k}, DType::i32),
                                y, {c.k, 0, c.t * c.k});
    const KernelWork w = kernels_of(call)[0];
    CHECK(w.bytes == 4.0 * static_cast<double>(c.elements) + 4.0 * static_cast<double>(c.t * c.k));
  }
}

TEST_CASE("more than 2^31 - 1 assignments are refused: ids of rows have 32 bits", "[C10]") {
  const int64_t tokens = int64_t{1} << 30;
  PlanAttr a;
  a.experts = 4, a.top_k = 2;
  const auto build = [&] {
    dispatch_plan(phantom({tokens, 2}, DType::i32), phantom({tokens, 2}, DType::f32),
                  phantom({5}, DType::i64), phantom({tokens * 2}, DType::i32),
                  phantom({tokens * 2}, DType::i32), phantom({5}, DType::i64), a);
  };
  CHECK_THROWS_AS(build(), Error);
}

TEST_CASE("FLOP of huge products do not wrap", "[C10]") {
  const int64_t n = int64_t{1} << 20;
  const KernelWork w = kernels_of(gemm(phantom({n, n}, DType::bf16), phantom({n, n}, DType::bf16),
                                       {}, phantom({n, n}, DType::bf16), {}, {}))[0];
  CHECK(w.flop == 2.0 * 1152921504606846976.0);
  CHECK(w.bytes == 6.0 * 1099511627776.0);
}

TEST_CASE("the arithmetic reads and writes rows beyond 2^31 elements",
          "[P068][P071][slow-memory]") {
  const int64_t h = 2048, rows = 1079839;  // 2,211,510,272 elements
  Mapped far(rows * h * 2);
  uint16_t* last = far.as<uint16_t>() + (rows - 1) * h;
  for (int64_t i = 0; i < h; ++i) last[i] = 0x3f80;  // 1.0
  std::vector<uint16_t> out(static_cast<size_t>(h));

  // permute: row 0 of the result is the last token.
  Mapped source(rows * 4);
  source.as<int32_t>()[0] = static_cast<int32_t>(rows - 1);
  run(permute(phantom({rows, h}, DType::bf16), phantom({rows}, DType::i32),
              phantom({1, h}, DType::bf16), {1, 0, 1}),
      {far.as<void>(), source.as<void>(), out.data()});
  CHECK(std::memcmp(out.data(), last, static_cast<size_t>(2 * h)) == 0);

  // embed: the last row of the table.
  int32_t id = static_cast<int32_t>(rows - 1);
  std::fill(out.begin(), out.end(), uint16_t{0});
  run(embed(phantom({1}, DType::i32), phantom({rows, h}, DType::bf16), {},
            phantom({1, h}, DType::bf16), {1}),
      {&id, far.as<void>(), nullptr, out.data()});
  CHECK(std::memcmp(out.data(), last, static_cast<size_t>(2 * h)) == 0);

  // combine of the last token alone, from a buffer that begins with its row.
  std::vector<uint16_t> row(static_cast<size_t>(h), 0x4000);  // 2.0
  Mapped weights(rows * 4), position(rows * 4), combined(rows * h * 2);
  weights.as<float>()[rows - 1] = 0.5f;
  position.as<int32_t>()[rows - 1] = static_cast<int32_t>(rows - 1);
  run(combine(phantom({1, h}, DType::bf16), phantom({rows, 1}, DType::f32),
              phantom({rows}, DType::i32), phantom({rows, h}, DType::bf16), {1, rows - 1, 1}),
      {row.data(), weights.as<void>(), position.as<void>(), combined.as<void>()});
  CHECK(std::memcmp(combined.as<uint16_t>() + (rows - 1) * h, last, static_cast<size_t>(2 * h)) ==
        0);

  // grouped gemm: the weights of the last of many experts lie beyond 2^31 elements.
  const int64_t experts = 520, side = 2048;
  Mapped w(experts * side * side * 4);
  w.as<float>()[(experts - 1) * side * side] = 3;
  std::vector<float> a(static_cast<size_t>(side), 0.0f), c(static_cast<size_t>(side));
  a[0] = 2;
  std::vector<int64_t> counts(static_cast<size_t>(experts), 0);
  counts.back() = 1;
  run(grouped_gemm(phantom({1, side}, DType::f32), phantom({experts, side, side}, DType::f32), {},
                   phantom({1, side}, DType::f32), {}, {}, test::sizes(counts)),
      {a.data(), w.as<void>(), nullptr, c.data(), nullptr});
  CHECK(c[0] == 6);
  CHECK(c[1] == 0);
}

}  // namespace moetwin
