// norm, norm_backward: a block per row; weights' gradients in two passes of fixed order.

#include "backends/cuda/ops/host.h"
#include "backends/cuda/ops/norm_row.cuh"
#include "core/ops/norm.h"

namespace moetwin::cuda_ops {
namespace {

template <class T, int step>
__global__ void normalise(const T* x, AnyReal gamma, AnyReal beta, T* y, float* mean_out,
                          float* rstd_out, int64_t rows, int64_t n, float epsilon) {
  for (int64_t r = block_id(); r < rows; r += block_count()) {
    const T* in = x + r * n;
    float mean = 0;
    if (mean_out) {
      float sum = 0;
      for (int64_t i = thread_id() * step; i < n; i += thread_count() * step) {
        float v[step];
        load(in + i, v);
#pragma unroll
        for (int j = 0; j < step; ++j) sum += v[j];
      }
      mean = block_sum(sum) / static_cast<float>(n);
    }
    float squares = 0;
    for (int64_t i = thread_id() * step; i < n; i += thread_count() * step) {
      float v[step];
      load(in + i, v);
#pragma unroll
      for (int j = 0; j < step; ++j) squares += (v[j] - mean) * (v[j] - mean);
    }
    const float rstd = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(n) + epsilon);
    for (int64_t i = thread_id() * step; i < n; i += thread_count() * step) {
      float v[step], g[step], b[step];
      load(in + i, v);
      gamma.load_to(i, g);
#pragma unroll
      for (int j = 0; j < step; ++j) b[j] = 0;
      if (beta.p) beta.load_to(i, b);
#pragma unroll
      for (int j = 0; j < step; ++j) v[j] = (v[j] - mean) * rstd * g[j] + b[j];
      store(y + r * n + i, v);
    }
    if (thread_id() == 0) {
      if (mean_out) mean_out[r] = mean;
      rstd_out[r] = rstd;
    }
  }
}

/// A block takes `per_block` rows; its sums for the weights' gradients go to sums[block][2 n]
/// (gamma's, then beta's). Each thread sums its own columns, in shared memory where they fit.
template <class T, int step>
__global__ void norm_gradient(const T* x, AnyReal gamma, const float* mean, const float* rstd,
                              const T* dy, T* dx, float* sums, bool in_shared, bool with_beta,
                              int64_t rows, int64_t per_block, int64_t n) {
  float* mine = sums + block_id() * 2 * n;
  float* sum = in_shared ? reinterpret_cast<float*>(shared_memory()) : mine;
  for (int64_t i = thread_id() * step; i < n; i += thread_count() * step)
#pragma unroll
    for (int j = 0; j < step; ++j) sum[i + j] = sum[n + i + j] = 0;
  const int64_t first = block_id() * per_block;
  const int64_t end = first + per_block < rows ? first + per_block : rows;
  for (int64_t r = first; r < end; ++r)
    row_gradient<T, step>(x + r * n, gamma, dy + r * n, dx + r * n, n, mean ? mean[r] : 0.0f,
                          rstd[r], mean != nullptr, sum, with_beta ? sum + n : nullptr);
  if (!in_shared) return;
  for (int64_t i = thread_id() * step; i < n; i += thread_count() * step)
#pragma unroll
    for (int j = 0; j < step; ++j) {
      mine[i + j] = sum[i + j];
      mine[n + i + j] = sum[n + i + j];
    }
}

}  // namespace

void norm(const OpCall& call, CudaLaunchContext& context) {
  const int64_t rows = call[0].shape[0], n = call[0].shape[1];
  const float epsilon = static_cast<float>(call.get<NormAttr>().epsilon);
  const bool packed = n % kPacked == 0 && aligned(call[0].data(), 16) &&
                      aligned(call[1].data(), 16) && aligned(call[2].data(), 16) &&
                      aligned(call[3].data(), 16);
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(packed ? normalise<T, kPacked> : normalise<T, 1>,
           blocks_for(rows, 1, most_blocks(context)), row_threads(n, packed ? kPacked : 1), 0,
           context.stream, data<const T>(call[0]), any_real(call[1]), any_real(call[2]),
           data<T>(call[3]), data<float>(call[4]), data<float>(call[5]), rows, n, epsilon);
  });
}

void norm_backward(const OpCall& call, CudaLaunchContext& context) {
  const int64_t rows = call[0].shape[0], n = call[0].shape[1];
  if (rows == 0) return;
  const int64_t per_block = (rows + kParts - 1) / kParts,
                blocks = (rows + per_block - 1) / per_block;
  const bool packed = n % kPacked == 0 && aligned(call[0].data(), 16) &&
                      aligned(call[1].data(), 16) && aligned(call[4].data(), 16) &&
                      aligned(call[5].data(), 16);
  const int64_t shared = 2 * n * static_cast<int64_t>(sizeof(float));
  const bool in_shared = shared <= 64 * 1024;
  float* sums = take<float>(context, blocks * 2 * n);
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(packed ? norm_gradient<T, kPacked> : norm_gradient<T, 1>, blocks,
           row_threads(n, packed ? kPacked : 1), in_shared ? shared : 0, context.stream,
           data<const T>(call[0]), any_real(call[1]), data<const float>(call[2]),
           data<const float>(call[3]), data<const T>(call[4]), data<T>(call[5]), sums, in_shared,
           call[7].defined(), rows, per_block, n);
  });
  add_sums(context, sums, blocks, 2 * n, 0, n, any_real(call[6]));
  if (call[7].defined()) add_sums(context, sums, blocks, 2 * n, n, n, any_real(call[7]));
}

}  // namespace moetwin::cuda_ops
