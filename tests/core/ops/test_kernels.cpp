// What the ops stand for as kernels: FLOP and bytes against arithmetic.

#include <catch2/catch.hpp>
#include <string>

#include "core/ops/attention.h"
#include "core/ops/dispatch.h"
#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "core/ops/optimizer.h"
#include "core/ops/table.h"
#include "tests/core/ops/phantom.h"

namespace moetwin {
namespace {

using test::kernels_of;
using test::phantom;
using test::sizes;

constexpr KernelClass kClasses[] = {KernelClass::moetwin, KernelClass::megatron_2021,
                                    KernelClass::megatron_core, KernelClass::torch_fsdp};

double total_bytes(const KernelList& list) {
  double sum = 0;
  for (const KernelWork& w : list) sum += w.bytes;
  return sum;
}
double total_flop(const KernelList& list) {
  double sum = 0;
  for (const KernelWork& w : list) sum += w.flop;
  return sum;
}

}  // namespace

TEST_CASE("every op: one kernel in moetwin, never less work in other frameworks") {
  for (DType d : {DType::f32, DType::bf16, DType::f64})
    for (const OpCall& call : test::sample_calls(d)) {
      INFO(call.op->name << " in " << dtype_name(d));
      const KernelList own = kernels_of(call);
      CHECK(own.size() == 1);
      CHECK(call.op->workspace(call) >= 0);
      for (KernelClass c : kClasses) {
        const KernelList list = kernels_of(call, c);
        CHECK(list.size() >= own.size());
        for (const KernelWork& w : list) {
          CHECK(w.flop >= 0);
          CHECK(w.bytes > 0);
        }
        // Fusion only removes traffic; but qk_norm copies the values along, which others keep
        // apart.
        if (std::string(call.op->name).starts_with("qk_norm")) continue;
        CHECK(total_bytes(list) >= 0.99 * total_bytes(own));
      }
    }
}

TEST_CASE("gemm: 2 m n k, and each operand once") {
  const int64_t m = 128, n = 512, k = 64;
  const auto x = [](int64_t a, int64_t b) { return phantom({a, b}, DType::bf16); };
  GemmAttr attr;
  attr.epilogue = Epilogue::gelu;
  const OpCall call = gemm(x(m, k), x(k, n), phantom({n}, DType::bf16), x(m, n), x(m, n), attr);
  const KernelWork w = kernels_of(call)[0];
  CHECK(w.kind == KernelKind::gemm);
  CHECK(w.dtype == DType::bf16);
  CHECK(w.flop == 2.0 * 128 * 512 * 64);
  CHECK(w.bytes == 2.0 * (128 * 64 + 64 * 512 + 512 + 2 * 128 * 512));
  CHECK((w.m == m && w.n == n && w.k == k && w.batch == 1));
  // Megatron: the product, then bias and GELU in one pass over it.
  const KernelList megatron = kernels_of(call, KernelClass::megatron_core);
  REQUIRE(megatron.size() == 2);
  CHECK(megatron[0].bytes == 2.0 * (128 * 64 + 64 * 512 + 128 * 512));
  CHECK(megatron[1].kind == KernelKind::elementwise);
  CHECK(megatron[1].bytes == 2.0 * (512 + 2 * 128 * 512));

  GemmAttr accumulate;
  accumulate.transpose_a = true;
  accumulate.accumulate = true;
  const KernelWork grad =
      kernels_of(gemm(x(m, k), x(m, n), {}, phantom({k, n}, DType::f32), {}, accumulate))[0];
  CHECK((grad.m == k && grad.n == n && grad.k == m));
  CHECK(grad.bytes == 2.0 * (128 * 64 + 128 * 512) + 2 * 4.0 * 64 * 512);
}

TEST_CASE("FP8 products: halves of the operands' bytes, a cast before all but weight gradients") {
  const int64_t m = 128, n = 512, k = 64;
  const auto x = [](int64_t a, int64_t b) { return phantom({a, b}, DType::bf16); };
  KernelChoice fp8 = KernelClass::megatron_core;
  fp8.fp8_products = true;
  const KernelList forward = kernels_of(gemm(x(m, k), x(k, n), {}, x(m, n), {}, {}), fp8);
  REQUIRE(forward.size() == 2);
  // Two bytes read, one written as it lies and one transposed.
  CHECK((forward[0].kind == KernelKind::elementwise && forward[0].bytes == 4.0 * m * k));
  CHECK((forward[1].fp8 && forward[1].bytes == 1.0 * (m * k + k * n) + 2.0 * m * n));
  GemmAttr gradient;
  gradient.transpose_a = gradient.accumulate = true;
  const KernelList weight =
      kernels_of(gemm(x(m, k), x(m, n), {}, phantom({k, n}, DType::f32), {}, gradient), fp8);
  REQUIRE(weight.size() == 1);
  CHECK(weight[0].fp8);
  CHECK_FALSE(kernels_of(gemm(x(m, k), x(k, n), {}, x(m, n), {}, {}))[0].fp8);
}

TEST_CASE("grouped gemm: rows in use, weights of groups that have any", "[P024]") {
  const HostSizes rows = sizes({0, 5, 0, 3});
  const OpCall call = grouped_gemm(phantom({10, 16}, DType::f32), phantom({4, 16, 32}, DType::f32),
                                   {}, phantom({10, 32}, DType::f32), {}, {}, rows);
  const KernelWork w = kernels_of(call)[0];
  CHECK(w.kind == KernelKind::grouped_gemm);
  CHECK(w.flop == 2.0 * 8 * 16 * 32);
  CHECK(w.bytes == 4.0 * (8 * 16 + 8 * 32 + 2 * 16 * 32));
  CHECK((w.m == 5 && w.n == 32 && w.k == 16 && w.batch == 4));
  REQUIRE(w.group_rows != nullptr);
  CHECK(*w.group_rows == *rows);
  // One expert after the other: two products.
  const KernelList loop = kernels_of(call, KernelClass::megatron_2021);
  REQUIRE(loop.size() == 2);
  CHECK((loop[0].m == 5 && loop[1].m == 3));
  CHECK(total_flop(loop) == w.flop);
}

TEST_CASE("attention: causal half in one kernel, or whole score matrices in memory") {
  HeadsAttr a;
  a.query_heads = 8, a.kv_heads = 2, a.head_dim = 64, a.sequence_length = 1024;
  const int64_t tokens = 2048;
  const OpCall call =
      attention(phantom({tokens, 12 * 64}, DType::bf16), phantom({tokens, 512}, DType::bf16),
                phantom({tokens, 8}, DType::f32), a);
  const KernelWork w = kernels_of(call)[0];
  CHECK(w.kind == KernelKind::attention);
  CHECK(w.batch == 16);
  // Pairs (query, key) seen: S (S + 1) / 2 a head; two products of 2 D FLOP each.
  CHECK(w.flop == 16 * (1024.0 * 1025 / 2) * 4 * 64);
  CHECK(w.bytes == 2.0 * (2048 * 768 + 2048 * 512) + 4.0 * 2048 * 8);
  // Megatron's: product, softmax with scale and mask, product, heads side by side again.
  const KernelList fused = kernels_of(call, KernelClass::megatron_2021);
  REQUIRE(fused.size() == 4);
  CHECK(fused[0].flop == 16 * 2.0 * 1024 * 1024 * 64);
  const double scores = 16 * 1024.0 * 1024;
  CHECK(fused[1].bytes == 2 * 2 * scores);
  CHECK(total_bytes(fused) > 4 * 2 * scores);  // written, read, written, read
  CHECK(call.op->saved(call, KernelClass::megatron_2021) == 2 * 16 * 1024 * 1024);
  // Dropout on the probabilities: a mask of a byte an element, and what it leaves.
  KernelChoice dropout = KernelClass::megatron_2021;
  dropout.attention_dropout = true;
  REQUIRE(kernels_of(call, dropout).size() == 5);
  CHECK(kernels_of(call, dropout)[2].bytes == (2 * 2 + 1) * scores);
  CHECK(call.op->saved(call, dropout) == (2 + 1 + 2) * 16 * 1024 * 1024);
  // Early PyTorch: 143e9 elements a second on half of 19.5 TFLOP/s. Later: 10 integer operations in
  // each of 10 rounds for 4 draws.
  CHECK(kernels_of(call, dropout)[2].flop == Approx(19.5e12 / 2 / 143e9 * scores).epsilon(0.01));
  KernelChoice later = parse_kernels("megatron-2022", "auto");
  later.attention_dropout = true;
  CHECK(kernels_of(call, later)[2].flop == 10 * 10 / 4 * scores);
  // PyTorch's own: operands packed out, the mask added by a kernel of its own.
  KernelChoice eager = KernelClass::torch_fsdp;
  eager.attention = AttentionKernel::unfused;
  CHECK(kernels_of(call, eager).size() == 6);
  for (KernelClass c :
       {KernelClass::moetwin, KernelClass::megatron_core, KernelClass::torch_fsdp}) {
    CHECK(kernels_of(call, c).size() == 1);
    CHECK(call.op->saved(call, c) == 0);
  }
  CHECK(kernels_of(call, KernelClass::moetwin)[0].attention == AttentionKernel::flash);
  CHECK(kernels_of(call, KernelClass::megatron_core)[0].attention == AttentionKernel::flash2);
}

TEST_CASE("Megatron's fused softmax takes heads by fours, others go through PyTorch's in fp32") {
  const auto scores_of = [](int64_t heads) { return static_cast<double>(heads) * 512 * 512; };
  for (const int64_t heads : {2, 4, 6, 8}) {
    AttentionWork work;
    work.dtype = DType::f16;
    work.sequence = 512;
    work.head_dim = 64;
    work.heads = heads;
    KernelList forward, backward;
    attention_kernels(work, false, KernelClass::megatron_2021, forward);
    attention_kernels(work, true, KernelClass::megatron_2021, backward);
    const auto products = [](const KernelList& list) {
      double bytes = 0;
      for (const KernelWork& k : list) bytes += k.kind == KernelKind::gemm ? k.bytes : 0;
      return bytes;
    };
    // Heads beside each other again, and apart; four of them in the backward.
    const double rows = 2.0 * static_cast<double>(heads) * 512 * 64;
    const double forward_bytes = total_bytes(forward) - products(forward) - 2 * rows;
    const double backward_bytes = total_bytes(backward) - products(backward) - 2 * 4 * rows;
    if (heads % 4 == 0) {
      CHECK(forward.size() == 4);
      CHECK(forward_bytes == Approx(2 * 2 * scores_of(heads)));   // read and written
      CHECK(backward_bytes == Approx(3 * 2 * scores_of(heads)));  // two read, one written
    } else {
      // Widened, scaled, masked, softmax, narrowed; softmax of two in fp32, and back through all.
      CHECK(forward.size() == 4 + 4);
      CHECK(forward_bytes == Approx((6 + 8 + 8 + 8 + 6) * scores_of(heads)));
      CHECK(backward_bytes == Approx((6 + 12 + 8 + 8 + 6) * scores_of(heads)));
    }
  }
}

TEST_CASE("DeepSpeed adds bf16 gradients to fp32 ones in a kernel of its own") {
  GemmAttr attr;
  attr.transpose_a = attr.accumulate = true;
  const auto gradient = [&](DType dtype) {
    return kernels_of(gemm(phantom({128, 32}, dtype), phantom({128, 64}, dtype), {},
                           phantom({32, 64}, DType::f32), {}, attr),
                      KernelClass::megatron_2021);
  };
  REQUIRE(gradient(DType::bf16).size() == 2);
  CHECK(gradient(DType::bf16)[0].bytes == 2.0 * (128 * 32 + 128 * 64 + 32 * 64));
  CHECK(gradient(DType::bf16)[1].bytes == (2 + 4 + 4) * 32.0 * 64);
  CHECK(gradient(DType::f16).size() == 1);
}

TEST_CASE("AdamW: parameter, m and v both ways, the gradient once") {
  const int64_t n = 1000;
  const Tensor p = phantom({n}, DType::f32);
  const OpCall call = adamw(p, phantom({n}, DType::bf16), p, p, phantom({1}, DType::f32), {});
  const KernelWork w = kernels_of(call)[0];
  CHECK(w.kind == KernelKind::optimizer);
  CHECK(w.bytes == 3 * 2 * 4.0 * 1000 + 2.0 * 1000 + 4);
  // Clipping goes over the gradients first; fp16's unscaling before it.
  const KernelList core = kernels_of(call, KernelClass::megatron_core);
  REQUIRE(core.size() == 2);
  CHECK(core[0].bytes == 2 * 2.0 * 1000);
  CHECK(core[1].bytes == w.bytes);
  CHECK(kernels_of(call, KernelClass::megatron_2021).size() == 3);
  CHECK(kernels_of(call, KernelClass::torch_fsdp).size() > 4);
}

TEST_CASE("prices follow the rows moved, not the buffers they are in") {
  const Tensor x = phantom({100, 8}, DType::f32);
  const KernelWork moved = kernels_of(
      permute(x, phantom({200}, DType::i32), phantom({30, 8}, DType::f32), {2, 50, 30}))[0];
  CHECK(moved.bytes == 30 * (2 * 8 * 4.0 + 4));
  const KernelWork copied = kernels_of(regroup(x, x, sizes({0, 10, 5, 20, 40, 7})))[0];
  CHECK(copied.bytes == 2 * 12 * 8 * 4.0);
}

}  // namespace moetwin
