// add, scaled_add, scale, cast, copy, fill, sum_parts. Arithmetic in fp32, rounded once.

#include <bit>

#include "backends/cuda/ops/host.h"
#include "core/ops/elementwise.h"

namespace moetwin::cuda_ops {
namespace {

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct ScaledSum {
  float alpha;
  __device__ float operator()(float x, float y) const { return y + alpha * x; }
};
struct Times {
  float alpha;
  __device__ float operator()(float x) const { return alpha * x; }
};
struct Same {
  __device__ float operator()(float x) const { return x; }
};

int64_t packed_part(int64_t n, std::initializer_list<const void*> pointers) {
  for (const void* p : pointers)
    if (!aligned(p, 16)) return 0;
  return n / kPacked * kPacked;
}
int64_t blocks_of(const CudaLaunchContext& context, int64_t n) {
  return blocks_for(n, kThreads * kPacked, most_blocks(context));
}

template <class F>
void unary(const OpCall& call, CudaLaunchContext& context, F f) {
  const int64_t n = call[1].elements();
  with_real(call[0].dtype, [&](auto x_tag) {
    with_real(call[1].dtype, [&](auto y_tag) {
      using X = typename decltype(x_tag)::type;
      using Y = typename decltype(y_tag)::type;
      const X* x = data<const X>(call[0]);
      Y* y = data<Y>(call[1]);
      launch(map_one<F, X, Y>, blocks_of(context, n), kThreads, 0, context.stream, n,
             packed_part(n, {x, y}), f, x, y);
    });
  });
}

/// y[i] = sum over p of x[p n + i], ascending.
template <class X, class Y>
__global__ void add_parts(const X* x, Y* y, int64_t parts, int64_t n, int64_t packed) {
  for (int64_t i = grid_thread() * kPacked; i < packed; i += grid_threads() * kPacked) {
    float sum[kPacked], part[kPacked];
    load(x + i, sum);
    for (int64_t p = 1; p < parts; ++p) {
      load(x + p * n + i, part);
#pragma unroll
      for (int j = 0; j < kPacked; ++j) sum[j] += part[j];
    }
    store(y + i, sum);
  }
  for (int64_t i = packed + grid_thread(); i < n; i += grid_threads()) {
    float sum = to_float(x[i]);
    for (int64_t p = 1; p < parts; ++p) sum += to_float(x[p * n + i]);
    y[i] = from_float<Y>(sum);
  }
}

template <class Bits>
__global__ void fill_with(Bits* y, Bits value, int64_t n) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) y[i] = value;
}
template <class Real>
__global__ void fill_real(Real* y, float value, int64_t n) {
  const Real rounded = from_float<Real>(value);
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) y[i] = rounded;
}

}  // namespace

void add(const OpCall& call, CudaLaunchContext& context) {
  const int64_t n = call[2].elements();
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *a = data<const T>(call[0]), *b = data<const T>(call[1]);
    T* y = data<T>(call[2]);
    launch(map_two<Sum, T, T, T>, blocks_of(context, n), kThreads, 0, context.stream, n,
           packed_part(n, {a, b, y}), Sum{}, a, b, y);
  });
}

void scaled_add(const OpCall& call, CudaLaunchContext& context) {
  const ScaledSum f = {static_cast<float>(call.get<ScaleAttr>().alpha)};
  const int64_t n = call[1].elements();
  with_real(call[0].dtype, [&](auto x_tag) {
    with_real(call[1].dtype, [&](auto y_tag) {
      using X = typename decltype(x_tag)::type;
      using Y = typename decltype(y_tag)::type;
      const X* x = data<const X>(call[0]);
      Y* y = data<Y>(call[1]);
      launch(map_two<ScaledSum, X, Y, Y>, blocks_of(context, n), kThreads, 0, context.stream, n,
             packed_part(n, {x, y}), f, x, y, y);
    });
  });
}

void scale(const OpCall& call, CudaLaunchContext& context) {
  unary(call, context, Times{static_cast<float>(call.get<ScaleAttr>().alpha)});
}
void cast(const OpCall& call, CudaLaunchContext& context) { unary(call, context, Same{}); }

void copy(const OpCall& call, CudaLaunchContext& context) {
  if (call[0].bytes() == 0 || call[0].data() == call[1].data()) return;
  check_cuda(cudaMemcpyAsync(call[1].data(), call[0].data(), static_cast<size_t>(call[0].bytes()),
                             cudaMemcpyDeviceToDevice, context.stream),
             "copy");
}

void fill(const OpCall& call, CudaLaunchContext& context) {
  const double value = call.get<FillAttr>().value;
  const int64_t n = call[0].elements(), blocks = blocks_of(context, n);
  if (std::bit_cast<uint64_t>(value) == 0) return clear(context, call[0].data(), call[0].bytes());
  if (call[0].dtype == DType::i32)
    launch(fill_with<int32_t>, blocks, kThreads, 0, context.stream, data<int32_t>(call[0]),
           static_cast<int32_t>(value), n);
  else if (call[0].dtype == DType::i64)
    launch(fill_with<int64_t>, blocks, kThreads, 0, context.stream, data<int64_t>(call[0]),
           static_cast<int64_t>(value), n);
  else
    with_real(call[0].dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      launch(fill_real<T>, blocks, kThreads, 0, context.stream, data<T>(call[0]),
             static_cast<float>(value), n);
    });
}

void sum_parts(const OpCall& call, CudaLaunchContext& context) {
  const int64_t parts = call.get<PartsAttr>().parts, n = call[1].elements();
  with_real(call[0].dtype, [&](auto x_tag) {
    with_real(call[1].dtype, [&](auto y_tag) {
      using X = typename decltype(x_tag)::type;
      using Y = typename decltype(y_tag)::type;
      const X* x = data<const X>(call[0]);
      Y* y = data<Y>(call[1]);
      // Every part begins at a multiple of 16 bytes, or none is read so.
      const int64_t packed = n % kPacked == 0 || parts == 1 ? packed_part(n, {x, y}) : 0;
      launch(add_parts<X, Y>, blocks_of(context, n), kThreads, 0, context.stream, x, y, parts, n,
             packed);
    });
  });
}

}  // namespace moetwin::cuda_ops
