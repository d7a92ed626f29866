// gelu, swiglu and their backward. A host row count cuts the work to that many leading rows.

#include "backends/cuda/ops/gelu.cuh"
#include "backends/cuda/ops/host.h"
#include "core/ops/activation.h"

namespace moetwin::cuda_ops {
namespace {

struct Gelu {
  bool tanh_form;
  __device__ float operator()(float x) const { return gelu_of(x, tanh_form); }
};
struct GeluBackward {
  bool tanh_form;
  __device__ float operator()(float x, float dy) const { return dy * gelu_slope(x, tanh_form); }
};

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/// `step` elements of a row at a time: kPacked where rows allow it, else one.
template <class T, int step>
__global__ void swiglu_forward(const T* x, T* y, int64_t rows, int64_t f) {
  const int64_t per_row = f / step;
  for (int64_t i = grid_thread(); i < rows * per_row; i += grid_threads()) {
    const int64_t row = i / per_row, col = i % per_row * step;
    float gate[step], up[step];
    load(x + row * 2 * f + col, gate);
    load(x + row * 2 * f + f + col, up);
#pragma unroll
    for (int j = 0; j < step; ++j) up[j] *= gate[j] * sigmoid(gate[j]);
    store(y + row * f + col, up);
  }
}
template <class T, int step>
__global__ void swiglu_gradient(const T* x, const T* dy, T* dx, int64_t rows, int64_t f) {
  const int64_t per_row = f / step;
  for (int64_t i = grid_thread(); i < rows * per_row; i += grid_threads()) {
    const int64_t row = i / per_row, col = i % per_row * step;
    float gate[step], up[step], g[step];
    load(x + row * 2 * f + col, gate);
    load(x + row * 2 * f + f + col, up);
    load(dy + row * f + col, g);
#pragma unroll
    for (int j = 0; j < step; ++j) {
      const float s = sigmoid(gate[j]);
      const float slope = s * (1.0f + gate[j] * (1.0f - s));
      const float d_gate = g[j] * up[j] * slope;
      up[j] = g[j] * (gate[j] * s);
      gate[j] = d_gate;
    }
    store(dx + row * 2 * f + col, gate);
    store(dx + row * 2 * f + f + col, up);
  }
}

int64_t rows_of(const OpCall& call) { return call.sizes ? (*call.sizes)[0] : call[0].shape[0]; }
/// gelu takes any shape; rows are its leading extent.
int64_t elements_in_use(const OpCall& call) {
  const int64_t rows = call[0].shape[0];
  return rows > 0 ? call[0].elements() / rows * rows_of(call) : 0;
}
int64_t blocks_of(const CudaLaunchContext& context, int64_t n) {
  return blocks_for(n, kThreads * kPacked, most_blocks(context));
}

}  // namespace

void gelu(const OpCall& call, CudaLaunchContext& context) {
  const int64_t n = elements_in_use(call);
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = data<const T>(call[0]);
    T* y = data<T>(call[1]);
    launch(map_one<Gelu, T, T>, blocks_of(context, n), kThreads, 0, context.stream, n,
           aligned(x, 16) && aligned(y, 16) ? n / kPacked * kPacked : 0,
           Gelu{call.get<GeluAttr>().tanh_form}, x, y);
  });
}

void gelu_backward(const OpCall& call, CudaLaunchContext& context) {
  const int64_t n = elements_in_use(call);
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *x = data<const T>(call[0]), *dy = data<const T>(call[1]);
    T* dx = data<T>(call[2]);
    const bool packed = aligned(x, 16) && aligned(dy, 16) && aligned(dx, 16);
    launch(map_two<GeluBackward, T, T, T>, blocks_of(context, n), kThreads, 0, context.stream, n,
           packed ? n / kPacked * kPacked : 0, GeluBackward{call.get<GeluAttr>().tanh_form}, x, dy,
           dx);
  });
}

void swiglu(const OpCall& call, CudaLaunchContext& context) {
  const int64_t rows = rows_of(call), f = call[1].shape[1];
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = data<const T>(call[0]);
    T* y = data<T>(call[1]);
    const bool packed = f % kPacked == 0 && aligned(x, 16) && aligned(y, 16);
    launch(packed ? swiglu_forward<T, kPacked> : swiglu_forward<T, 1>, blocks_of(context, rows * f),
           kThreads, 0, context.stream, x, y, rows, f);
  });
}

void swiglu_backward(const OpCall& call, CudaLaunchContext& context) {
  const int64_t rows = rows_of(call), f = call[1].shape[1];
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *x = data<const T>(call[0]), *dy = data<const T>(call[1]);
    T* dx = data<T>(call[2]);
    const bool packed = f % kPacked == 0 && aligned(x, 16) && aligned(dy, 16) && aligned(dx, 16);
    launch(packed ? swiglu_gradient<T, kPacked> : swiglu_gradient<T, 1>,
           blocks_of(context, rows * f), kThreads, 0, context.stream, x, dy, dx, rows, f);
  });
}

}  // namespace moetwin::cuda_ops
