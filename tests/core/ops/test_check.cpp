// Shape and dtype rules: what is refused and what the message says.

#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "core/base/error.h"
#include "core/ops/attention.h"
#include "core/ops/dispatch.h"
#include "core/ops/elementwise.h"
#include "core/ops/embedding.h"
#include "core/ops/gemm.h"
#include "core/ops/norm.h"
#include "core/ops/router.h"
#include "tests/core/ops/phantom.h"

namespace moetwin {
namespace {

using test::phantom;
using test::sizes;

void refused(const std::function<void()>& build, std::initializer_list<const char*> parts) {
  try {
    build();
  } catch (const Error& e) {
    CHECK(e.error_class() == ErrorClass::internal);
    for (const char* part : parts) {
      INFO("message: " << e.what());
      CHECK(std::string(e.what()).find(part) != std::string::npos);
    }
    return;
  }
  FAIL("accepted");
}
Tensor f32(std::initializer_list<int64_t> s) { return phantom(Shape(s), DType::f32); }
Tensor bf16(std::initializer_list<int64_t> s) { return phantom(Shape(s), DType::bf16); }
Tensor i32(std::initializer_list<int64_t> s) { return phantom(Shape(s), DType::i32); }
Tensor i64(std::initializer_list<int64_t> s) { return phantom(Shape(s), DType::i64); }

}  // namespace

TEST_CASE("a wrong shape names op, operand, what was wanted and all shapes") {
  refused(
      [] {
        gemm(f32({3, 7}), f32({7, 5}), {}, f32({3, 6}), {}, {});
      },
      {"op gemm", "operand c has shape [3,6], [3,5] wanted", "a [3,7] fp32", "b [7,5] fp32"});
  refused(
      [] {
        gemm(f32({3, 7}), f32({6, 5}), {}, f32({3, 5}), {}, {});
      },
      {"operand b has shape [6,5], [7,5] wanted"});
  refused([] { gemm(f32({3, 7}), f32({7, 5}), f32({4}), f32({3, 5}), {}, {}); }, {"operand bias"});
  refused(
      [] {
        gemm(f32({3}), f32({7, 5}), {}, f32({3, 5}), {}, {});
      },
      {"operand a has 1 extents, 2 wanted"});
}

TEST_CASE("a missing operand and a wrong dtype are named") {
  refused([] { gemm(f32({3, 7}), {}, {}, f32({3, 5}), {}, {}); }, {"operand b is missing"});
  refused(
      [] {
        gemm(bf16({3, 7}), f32({7, 5}), {}, f32({3, 5}), {}, {});
      },
      {"operand b is fp32, bf16 wanted"});
  refused([] { gemm(f32({3, 7}), f32({7, 5}), {}, bf16({3, 5}), {}, {}); }, {"operand c is bf16"});
  CHECK_NOTHROW(gemm(bf16({3, 7}), bf16({7, 5}), {}, f32({3, 5}), {}, {}));
  refused([] { add(i32({3}), i32({3}), i32({3})); }, {"operand a is i32, a real type wanted"});
  refused(
      [] {
        router_select(bf16({3, 4}), {}, bf16({3, 4}), bf16({3, 1}), i32({3, 1}), i64({5}), {});
      },
      {"a router works in fp32 or fp64"});
}

TEST_CASE("rules on attributes and host sizes are stated") {
  GemmAttr both;
  both.accumulate = true;
  both.epilogue = Epilogue::gelu;
  refused(
      [&] {
        gemm(f32({3, 7}), f32({7, 5}), {}, f32({3, 5}), {}, both);
      },
      {"rule broken: accumulate goes with neither an epilogue nor pre"});
  const auto grouped = [](std::vector<int64_t> rows) {
    grouped_gemm(f32({9, 3}), f32({2, 3, 4}), {}, f32({9, 4}), {}, {}, sizes(std::move(rows)));
  };
  CHECK_NOTHROW(grouped({4, 5}));
  CHECK_NOTHROW(grouped({0, 0}));
  refused([&] { grouped({4, 6}); }, {"the groups' rows fit"});
  refused([&] { grouped({4}); }, {"one host row count per group"});
  refused([&] { grouped({-1, 5}); }, {"no negative row count"});
  refused(
      [] {
        regroup(f32({4, 2}), f32({4, 2}), sizes({0, 2, 3}));
      },
      {"every segment lies in x and in y"});
  SelectAttr select;
  select.top_k = 5;
  refused(
      [&] {
        router_select(f32({3, 4}), {}, f32({3, 4}), f32({3, 5}), i32({3, 5}), i64({5}), select);
      },
      {"1 <= top_k <= experts"});
  HeadsAttr heads;
  heads.query_heads = 3, heads.kv_heads = 2, heads.head_dim = 4, heads.sequence_length = 5;
  refused(
      [&] {
        attention(f32({10, 28}), f32({10, 12}), f32({10, 3}), heads);
      },
      {"query heads are a multiple of key heads"});
  heads.query_heads = 4;
  refused(
      [&] {
        attention(f32({9, 32}), f32({9, 16}), f32({9, 4}), heads);
      },
      {"tokens are whole sequences"});
  NormAttr rms;
  rms.kind = NormKind::rms;
  refused(
      [&] {
        norm(f32({2, 3}), f32({3}), {}, f32({2, 3}), f32({2}), f32({2}), rms);
      },
      {"mean is kept by the layer norm"});
}

TEST_CASE("16-bit layers may keep gradients and statistics in fp32, never the other way") {
  CHECK_NOTHROW(bias_grad(bf16({4, 3}), f32({3})));
  CHECK_NOTHROW(bias_grad(bf16({4, 3}), bf16({3})));
  refused([] { bias_grad(f32({4, 3}), bf16({3})); }, {"operand d_bias is bf16"});
  CHECK_NOTHROW(embed_backward(i32({4}), bf16({4, 3}), f32({9, 3}), {}, {4}));
}

}  // namespace moetwin
