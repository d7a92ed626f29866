#pragma once
// What the router's kernels share: the p-norm of a token's chosen scores, and order keys.

#include "backends/cuda/device.cuh"

namespace moetwin::cuda_ops {

/// The p-norm of k non-negative scores chosen(j), relative to the largest, so that tiny scores
/// neither underflow nor need an epsilon, and one score alone is its own norm exactly.
template <class F>
__device__ inline float score_norm(F chosen, int k, float p) {
  float top = 0;
  for (int j = 0; j < k; ++j) top = chosen(j) > top ? chosen(j) : top;
  if (k == 1 || !(top > 0)) return top;
  float sum = 0;
  for (int j = 0; j < k; ++j) {
    const float r = chosen(j) / top;
    sum += p == 1.0f ? r : p == 2.0f ? r * r : powf(r, p);
  }
  if (p == 1.0f) return top * sum;
  return top * (p == 2.0f ? sqrtf(sum) : powf(sum, 1.0f / p));
}

/// A number that orders floats: the larger the float, the larger the number; never 0 for a float
/// that is no NaN.
__device__ __forceinline__ uint32_t order_key(float x) {
  const uint32_t bits = float_bits(x == 0 ? 0.0f : x);  // -0 equals 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
/// The largest of value(i) over i < n; ties go to the lower i. All lanes call it and get it; keys
/// of 0 are not considered (-1: none is left).
template <class F>
__device__ inline int warp_best(int n, F key) {
  uint64_t best = 0;
  for (int i = lane_id(); i < n; i += 32) {
    const uint64_t mine =
        static_cast<uint64_t>(key(i)) << 32 | (0xffffffffu - static_cast<uint32_t>(i));
    if (key(i) != 0 && mine > best) best = mine;
  }
  best = warp_max(best);
  return best == 0 ? -1 : static_cast<int>(0xffffffffu - static_cast<uint32_t>(best));
}

}  // namespace moetwin::cuda_ops
