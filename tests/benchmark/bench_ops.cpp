// The reference arithmetic on one core: GFLOP/s of products, GB/s of what moves memory, and the
// nanoseconds of describing and pricing a launch without storage. CPU time is measured.

#include <benchmark/benchmark.h>

#include <vector>

#include "core/ops/activation.h"
#include "core/ops/attention.h"
#include "core/ops/dispatch.h"
#include "core/ops/elementwise.h"
#include "core/ops/embedding.h"
#include "core/ops/gemm.h"
#include "core/ops/isa.h"
#include "core/ops/loss.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/router.h"
#include "core/ops/table.h"

namespace moetwin {
namespace {

/// A tensor on its own memory, drawn or zero.
Tensor host(const Shape& shape, DType dtype, bool drawn = true) {
  Tensor t;
  t.shape = shape;
  t.dtype = dtype;
  t.buffer = std::make_shared<Buffer>();
  t.buffer->storage = std::shared_ptr<void>(
      std::aligned_alloc(64, static_cast<size_t>((t.bytes() + 64) / 64 * 64)), std::free);
  ReferenceCall call;
  call.tensors[0] = {t.data(), shape, dtype};
  InitAttr init;
  init.std = 1;
  init.global[2] = init.local[2] = t.elements();
  std::memcpy(call.attributes.data(), &init, sizeof init);
  const bool real = dtype != DType::i32 && dtype != DType::i64;
  if (real && drawn)
    reference_of(op_init_normal, best_isa())(call);
  else
    std::memset(t.data(), 0, static_cast<size_t>(t.bytes()));
  return t;
}
HostSizes sizes(std::vector<int64_t> values) {
  return std::make_shared<const std::vector<int64_t>>(std::move(values));
}
ReferenceCall reference_call(const OpCall& call) {
  ReferenceCall r;
  r.op = call.op;
  for (int i = 0; i < call.count; ++i)
    r.tensors[static_cast<size_t>(i)] = {call[i].data(), call[i].shape, call[i].dtype};
  r.attributes = call.attributes;
  r.sizes = call.sizes;
  return r;
}
/// Runs the call; reports FLOP/s or bytes/s by the op's own price.
void run(benchmark::State& state, const OpCall& call, bool flop) {
  const Reference f = reference_of(*call.op, best_isa());
  const ReferenceCall r = reference_call(call);
  for (auto _ : state) f(r);
  KernelList kernels;
  call.op->kernels(call, KernelClass::moetwin, kernels);
  const double work = flop ? kernels[0].flop : kernels[0].bytes;
  state.counters[flop ? "FLOP/s" : "bytes/s"] = benchmark::Counter(
      work, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

/// Arguments: m, n, k, transposition (0 none, 1 a, 2 b), dtype.
void bm_gemm(benchmark::State& state) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const DType d = kTypes[state.range(4)];
  GemmAttr attr;
  attr.transpose_a = state.range(3) == 1;
  attr.transpose_b = state.range(3) == 2;
  const Tensor a = host(attr.transpose_a ? Shape{k, m} : Shape{m, k}, d),
               b = host(attr.transpose_b ? Shape{n, k} : Shape{k, n}, d), c = host({m, n}, d);
  run(state, gemm(a, b, {}, c, {}, attr), true);
}
BENCHMARK(bm_gemm)
    ->Args({2048, 2048, 512, 0, 0})
    ->Args({2048, 512, 2048, 0, 0})
    ->Args({2048, 512, 2048, 2, 0})
    ->Args({512, 2048, 2048, 1, 0})
    ->Args({512, 512, 512, 0, 0})
    ->Args({512, 512, 512, 2, 0})
    ->Args({128, 384, 128, 0, 0})
    ->Args({512, 256, 64, 2, 0})
    ->Args({64, 256, 512, 1, 0})
    ->Args({2048, 8, 512, 0, 0})
    ->Args({512, 512, 512, 0, 1})
    ->Args({512, 512, 512, 0, 2})
    ->Args({512, 512, 512, 0, 3});

/// The MoE layer's two products: 4096 rows over 8 groups, 512 to 2048; arguments: backward form.
void bm_grouped_gemm(benchmark::State& state) {
  const int64_t rows = 4096, h = 512, f = 2048, g = 8;
  const HostSizes counts = sizes({512, 500, 524, 0, 1024, 256, 768, 512});
  const DType d = DType::f32;
  GroupedGemmAttr attr;
  attr.transpose_b = state.range(0) == 1;
  if (state.range(0) == 2)
    run(state,
        grouped_gemm_weight_grad(host({rows, h}, d), host({rows, f}, d), host({g, h, f}, d),
                                 counts),
        true);
  else if (state.range(0) == 3) {
    attr.epilogue = Epilogue::gelu;
    run(state,
        grouped_gemm(host({rows, h}, d), host({g, h, f}, d), host({g, f}, d), host({rows, f}, d),
                     host({rows, f}, d), attr, counts),
        true);
  } else {
    run(state,
        grouped_gemm(host({rows, h}, d),
                     host(attr.transpose_b ? Shape{g, f, h} : Shape{g, h, f}, d), {},
                     host({rows, f}, d), {}, attr, counts),
        true);
  }
}
BENCHMARK(bm_grouped_gemm)->Arg(0)->Arg(1)->Arg(2)->Arg(3);

/// Many small groups, as a small model has them.
void bm_grouped_gemm_small(benchmark::State& state) {
  const int64_t rows = 512, h = 128, f = 256, g = 8;
  run(state,
      grouped_gemm(host({rows, h}, DType::f32), host({g, h, f}, DType::f32), {},
                   host({rows, f}, DType::f32), {}, {}, sizes(std::vector<int64_t>(8, 64))),
      true);
}
BENCHMARK(bm_grouped_gemm_small);

/// Arguments: sequence length, head size, backward.
void bm_attention(benchmark::State& state) {
  HeadsAttr a;
  a.query_heads = a.kv_heads = 4;
  a.sequence_length = state.range(0);
  a.head_dim = state.range(1);
  const int64_t t = 1024, h = 4 * a.head_dim;
  const DType d = DType::f32;
  const Tensor qkv = host({t, 3 * h}, d), out = host({t, h}, d), lse = host({t, 4}, d);
  const OpCall forward = attention(qkv, out, lse, a);
  reference_of(op_attention, best_isa())(reference_call(forward));
  run(state,
      state.range(2) ? attention_backward(qkv, out, lse, host({t, h}, d), host({t, 3 * h}, d), a)
                     : forward,
      true);
}
BENCHMARK(bm_attention)
    ->Args({1024, 64, 0})
    ->Args({1024, 64, 1})
    ->Args({128, 32, 0})
    ->Args({128, 32, 1});

void bm_router_select(benchmark::State& state) {
  const int64_t t = 2048, e = state.range(0), k = 2;
  SelectAttr a;
  a.top_k = k;
  run(state,
      router_select(host({t, e}, DType::f32), {}, host({t, e}, DType::f32),
                    host({t, k}, DType::f32), host({t, k}, DType::i32), host({e + 1}, DType::i64),
                    a),
      false);
}
BENCHMARK(bm_router_select)->Arg(8)->Arg(64);

/// Arguments: 0 permute, 1 combine, 2 combine_backward, 3 permute_backward.
void bm_permute(benchmark::State& state) {
  const int64_t t = 2048, h = 512, k = 2;
  const DType d = DType::f32;
  const Tensor source = host({t * k}, DType::i32), position = host({t * k}, DType::i32);
  for (int64_t i = 0; i < t * k; ++i) {
    const int64_t row = i * 1237 % (t * k);
    static_cast<int32_t*>(position.data())[i] = static_cast<int32_t>(row);
    static_cast<int32_t*>(source.data())[row] = static_cast<int32_t>(i);
  }
  const Tensor x = host({t, h}, d), y = host({t * k, h}, d), w = host({t, k}, d);
  switch (state.range(0)) {
    case 0:
      return run(state, permute(x, source, y, {k, 0, t * k}), false);
    case 1:
      return run(state, combine(y, w, position, x, {k, 0, t}), false);
    case 2:
      return run(
          state,
          combine_backward(x, y, w, position, host({t * k, h}, d), host({t, k}, d), {k, 0, t}),
          false);
    default:
      return run(state, permute_backward(y, position, x, {k, 0, t}), false);
  }
}
BENCHMARK(bm_permute)->DenseRange(0, 3);

/// What passes over memory once; arguments: which, dtype.
void bm_pass(benchmark::State& state) {
  const int64_t t = 1024, h = 512;
  const DType d = kTypes[state.range(1)], r = real_dtype(d);
  const Tensor x = host({t, h}, d), y = host({t, h}, d), v = host({h}, d), s = host({t}, r);
  switch (state.range(0)) {
    case 0:
      return run(state, add(x, y, y), false);
    case 1:
      return run(state, gelu(x, y, {}), false);
    case 2:
      return run(state, gelu_backward(x, y, y, {}), false);
    case 3:
      return run(state, norm(x, v, v, y, s, host({t}, r), {}), false);
    case 4:
      return run(
          state,
          norm_backward(x, v, s, host({t}, r), y, host({t, h}, d), host({h}, r), host({h}, r), {}),
          false);
    case 5:
      return run(state, cross_entropy(x, host({t}, DType::i32), host({2}, r), {1e-3}), false);
    case 6:
      return run(state, swiglu(x, host({t, h / 2}, d)), false);
    case 7: {
      AdamWAttr a;
      a.learning_rate = 1e-3;
      return run(
          state,
          adamw(host({t, h}, r), x, host({t, h}, r), host({t, h}, r, false), host({1}, r), a),
          false);
    }
    case 8:
      return run(state, sum_squares(x, host({1}, r)), false);
    case 9: {
      InitAttr a;
      a.global[2] = a.local[2] = t * h;
      return run(state, init_normal(x, a), false);
    }
    case 10: {
      RotaryAttr a;
      a.query_heads = 4, a.kv_heads = 2, a.head_dim = 64, a.sequence_length = 256;
      return run(state, rotary(x, a), false);
    }
    case 11:
      return run(state, cast(x, host({t, h}, DType::f32)), false);
    case 12: {
      DropoutAttr a;
      a.p = 0.1;
      return run(state, dropout(x, y, a), false);
    }
    default:
      return run(state, embed(host({t}, DType::i32), host({300, h}, d), {}, y, {t}), false);
  }
}
BENCHMARK(bm_pass)->ArgsProduct({benchmark::CreateDenseRange(0, 13, 1), {0, 1}});

/// Building and pricing one launch without storage.
void bm_phantom_launch(benchmark::State& state) {
  const auto phantom = [](const Shape& shape) {
    Tensor t;
    t.shape = shape;
    t.dtype = DType::bf16;
    t.buffer = std::make_shared<Buffer>();
    return t;
  };
  const Tensor a = phantom({4096, 4096}), b = phantom({4096, 4096}), bias = phantom({4096}),
               c = phantom({4096, 4096});
  KernelList kernels;
  for (auto _ : state) {
    kernels.clear();
    const OpCall call = gemm(a, b, bias, c, {}, {});
    call.op->kernels(call, KernelClass::moetwin, kernels);
    benchmark::DoNotOptimize(kernels.data());
  }
}
BENCHMARK(bm_phantom_launch);

}  // namespace
}  // namespace moetwin

BENCHMARK_MAIN();
