#pragma once
// Elements of any type as floats, as many at a time as 16 bytes hold.

#include "backends/cuda/device.cuh"

namespace moetwin::cuda_ops {

/// Elements a thread moves at a time; rows of multiples of it at multiples of 16 bytes are
/// `packed`.
inline constexpr int kPacked = 8;

template <class T, int N>
__device__ __forceinline__ void load(const T* p, float (&v)[N]) {
  constexpr int kPiece = 16 / sizeof(T) < N ? 16 / sizeof(T) : N;
#pragma unroll
  for (int i = 0; i < N; i += kPiece) {
    const Vector<T, kPiece> piece = *reinterpret_cast<const Vector<T, kPiece>*>(p + i);
#pragma unroll
    for (int j = 0; j < kPiece; ++j) v[i + j] = to_float(piece.v[j]);
  }
}
template <class T, int N>
__device__ __forceinline__ void store(T* p, const float (&v)[N]) {
  constexpr int kPiece = 16 / sizeof(T) < N ? 16 / sizeof(T) : N;
#pragma unroll
  for (int i = 0; i < N; i += kPiece) {
    Vector<T, kPiece> piece;
#pragma unroll
    for (int j = 0; j < kPiece; ++j) piece.v[j] = from_float<T>(v[i + j]);
    *reinterpret_cast<Vector<T, kPiece>*>(p + i) = piece;
  }
}

/// Elements of a type known when the kernel runs: parameters and their gradients, which may be
/// wider than the activations. All threads take the same branch.
struct AnyReal {
  void* p;
  int type;  ///< 0: fp32, 1: bf16, 2: fp16

  __device__ __forceinline__ float get(int64_t i) const {
    if (type == 0) return static_cast<const float*>(p)[i];
    return type == 1 ? to_float(static_cast<const bf16*>(p)[i])
                     : to_float(static_cast<const f16*>(p)[i]);
  }
  __device__ __forceinline__ void set(int64_t i, float x) const {
    if (type == 0)
      static_cast<float*>(p)[i] = x;
    else if (type == 1)
      static_cast<bf16*>(p)[i] = from_float<bf16>(x);
    else
      static_cast<f16*>(p)[i] = from_float<f16>(x);
  }
  template <int N>
  __device__ __forceinline__ void load_to(int64_t i, float (&v)[N]) const {
    if (type == 0)
      load(static_cast<const float*>(p) + i, v);
    else if (type == 1)
      load(static_cast<const bf16*>(p) + i, v);
    else
      load(static_cast<const f16*>(p) + i, v);
  }
  template <int N>
  __device__ __forceinline__ void store_from(int64_t i, const float (&v)[N]) const {
    if (type == 0)
      store(static_cast<float*>(p) + i, v);
    else if (type == 1)
      store(static_cast<bf16*>(p) + i, v);
    else
      store(static_cast<f16*>(p) + i, v);
  }
};

/// y[i] = f(x[i]) for all i; the first `packed` elements kPacked at a time.
template <class F, class X, class Y>
__global__ void map_one(int64_t n, int64_t packed, F f, const X* x, Y* y) {
  for (int64_t i = grid_thread() * kPacked; i < packed; i += grid_threads() * kPacked) {
    float a[kPacked];
    load(x + i, a);
#pragma unroll
    for (int j = 0; j < kPacked; ++j) a[j] = f(a[j]);
    store(y + i, a);
  }
  for (int64_t i = packed + grid_thread(); i < n; i += grid_threads())
    y[i] = from_float<Y>(f(to_float(x[i])));
}
/// z[i] = f(x[i], y[i]); z may be x or y.
template <class F, class X, class Y, class Z>
__global__ void map_two(int64_t n, int64_t packed, F f, const X* x, const Y* y, Z* z) {
  for (int64_t i = grid_thread() * kPacked; i < packed; i += grid_threads() * kPacked) {
    float a[kPacked], b[kPacked];
    load(x + i, a);
    load(y + i, b);
#pragma unroll
    for (int j = 0; j < kPacked; ++j) a[j] = f(a[j], b[j]);
    store(z + i, a);
  }
  for (int64_t i = packed + grid_thread(); i < n; i += grid_threads())
    z[i] = from_float<Z>(f(to_float(x[i]), to_float(y[i])));
}

}  // namespace moetwin::cuda_ops
