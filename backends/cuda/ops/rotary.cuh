#pragma once
// Angles of rotary positions, in double.

#include "backends/cuda/ops/host.h"
#include "core/ops/attention.h"

namespace moetwin::cuda_ops {

/// RotaryAngles::step: the angle of pair i of dim / 2 from one position to the next.
__device__ inline double rotary_step(const RotaryAngles& a, int i, int64_t dim) {
  const double f = pow(a.base, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
  double r = (static_cast<double>(i) - a.ramp_begin) / (a.ramp_end - a.ramp_begin);
  r = r < 0 ? 0 : r > 1 ? 1 : r;
  return f * (1 - r) + f * r / a.scaling_factor;
}

/// A block fills the cosines and sines of a position's dim / 2 pairs.
__device__ inline void rotary_fill(const RotaryAngles& a, double position, int64_t dim,
                                   bool inverse, float* cosine, float* sine) {
  for (int i = thread_id(); i < dim / 2; i += thread_count()) {
    const double angle = position * rotary_step(a, i, dim);
    cosine[i] = static_cast<float>(a.magnitude * cos(angle));
    sine[i] = static_cast<float>(a.magnitude * (inverse ? -sin(angle) : sin(angle)));
  }
}

}  // namespace moetwin::cuda_ops
