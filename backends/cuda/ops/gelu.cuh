#pragma once
// GELU (Hendrycks and Gimpel 2016) and its derivative: x Phi(x), or the tanh form.

#include "backends/cuda/device.cuh"

namespace moetwin::cuda_ops {

inline constexpr float kSqrtHalf = 0.70710678118654752f, kInvSqrtTwoPi = 0.39894228040143268f;
inline constexpr float kTanhScale = 0.79788456080286536f, kTanhCubic = 0.044715f;

__device__ __forceinline__ float gelu_of(float x, bool tanh_form) {
  const float inner =
      tanh_form ? tanhf(kTanhScale * (x + kTanhCubic * (x * x) * x)) : erff(x * kSqrtHalf);
  return 0.5f * x * (1.0f + inner);
}

__device__ __forceinline__ float gelu_slope(float x, bool tanh_form) {
  if (tanh_form) {
    const float square = x * x, t = tanhf(kTanhScale * (x + kTanhCubic * square * x));
    const float inner = kTanhScale * (1.0f + 3.0f * kTanhCubic * square);
    return 0.5f * (1.0f + t) + 0.5f * x * ((1.0f - t * t) * inner);
  }
  const float cdf = 0.5f * (1.0f + erff(x * kSqrtHalf));
  return cdf + x * (kInvSqrtTwoPi * expf(-0.5f * (x * x)));
}

}  // namespace moetwin::cuda_ops
