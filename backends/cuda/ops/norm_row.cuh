#pragma once
// The backward of a norm on one row, shared by norm and qk_norm.

#include "backends/cuda/ops/host.h"

namespace moetwin::cuda_ops {

/// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * gamma; without centring mean(g)
/// is left out. Adds dy * xhat to d_gamma and dy to d_beta (null: not wanted), each thread to its
/// own columns. All threads of the block call it.
template <class T, int step>
__device__ void row_gradient(const T* x, AnyReal gamma, const T* dy, T* dx, int64_t n, float mean,
                             float rstd, bool centred, float* d_gamma, float* d_beta) {
  float shift = 0, along = 0;
  for (int64_t i = thread_id() * step; i < n; i += thread_count() * step) {
    float v[step], d[step], g[step];
    load(x + i, v);
    load(dy + i, d);
    gamma.load_to(i, g);
#pragma unroll
    for (int j = 0; j < step; ++j) {
      const float centre = v[j] - mean;
      d_gamma[i + j] += d[j] * (centre * rstd);
      if (d_beta) d_beta[i + j] += d[j];
      g[j] *= d[j];
      shift += g[j];
      along += g[j] * centre;
    }
  }
  const float count = static_cast<float>(n);
  shift = centred ? block_sum(shift) / count : 0.0f;
  along = block_sum(along) * rstd / count;
  for (int64_t i = thread_id() * step; i < n; i += thread_count() * step) {
    float v[step], d[step], g[step];
    load(x + i, v);
    load(dy + i, d);
    gamma.load_to(i, g);
#pragma unroll
    for (int j = 0; j < step; ++j)
      v[j] = rstd * (d[j] * g[j] - shift - (v[j] - mean) * rstd * along);
    store(dx + i, v);
  }
}

/// d[i] += sum over parts p, ascending, of sums[p][offset + i], for i < n; a part has `width` sums.
void add_sums(CudaLaunchContext& context, const float* sums, int64_t parts, int64_t width,
              int64_t offset, int64_t n, AnyReal d);

}  // namespace moetwin::cuda_ops
