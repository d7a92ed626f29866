// qk_norm, qk_norm_backward: a warp per head of a token.

#include "backends/cuda/ops/host.h"
#include "backends/cuda/ops/norm_row.cuh"
#include "core/ops/norm.h"

namespace moetwin::cuda_ops {
namespace {

struct Heads {
  int64_t query, key, dim;
  __device__ int64_t normed() const { return query + key; }
  __device__ int64_t all() const { return query + 2 * key; }
};

/// Heads of all tokens over the warps of the grid; value heads are copied.
template <class T>
__global__ void normalise_heads(const T* qkv, AnyReal gamma_q, AnyReal gamma_k, T* out, float* rstd,
                                int64_t tokens, Heads h, float epsilon) {
  const int64_t warps = block_count() * warp_count();
  for (int64_t i = block_id() * warp_count() + warp_id(); i < tokens * h.all(); i += warps) {
    const int64_t token = i / h.all(), head = i % h.all();
    const T* x = qkv + i * h.dim;
    T* y = out + i * h.dim;
    if (head >= h.normed()) {
      for (int64_t j = lane_id(); j < h.dim; j += 32) y[j] = x[j];
      continue;
    }
    const AnyReal gamma = head < h.query ? gamma_q : gamma_k;
    float squares = 0;
    for (int64_t j = lane_id(); j < h.dim; j += 32) squares += to_float(x[j]) * to_float(x[j]);
    const float r = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(h.dim) + epsilon);
    for (int64_t j = lane_id(); j < h.dim; j += 32)
      y[j] = from_float<T>(to_float(x[j]) * r * gamma.get(j));
    if (lane_id() == 0) rstd[token * h.normed() + head] = r;
  }
}

/// A warp takes `per_warp` tokens and sums the gammas' gradients of its heads to sums[warp][2 dim].
template <class T>
__global__ void heads_gradient(const T* qkv, AnyReal gamma_q, AnyReal gamma_k, const float* rstd,
                               const T* d_out, T* d_qkv, float* sums, int64_t tokens,
                               int64_t per_warp, Heads h) {
  const int64_t warp = block_id() * warp_count() + warp_id(), first = warp * per_warp;
  if (first >= tokens) return;
  float* sum = sums + warp * 2 * h.dim;
  for (int64_t j = lane_id(); j < 2 * h.dim; j += 32) sum[j] = 0;
  sync_warp();
  const int64_t end = first + per_warp < tokens ? first + per_warp : tokens;
  const float count = static_cast<float>(h.dim);
  for (int64_t token = first; token < end; ++token)
    for (int64_t head = 0; head < h.all(); ++head) {
      const int64_t at = (token * h.all() + head) * h.dim;
      const T *x = qkv + at, *dy = d_out + at;
      T* dx = d_qkv + at;
      if (head >= h.normed()) {
        for (int64_t j = lane_id(); j < h.dim; j += 32) dx[j] = dy[j];
        continue;
      }
      const bool query = head < h.query;
      const AnyReal gamma = query ? gamma_q : gamma_k;
      float* d_gamma = query ? sum : sum + h.dim;
      const float r = rstd[token * h.normed() + head];
      float along = 0;
      for (int64_t j = lane_id(); j < h.dim; j += 32) {
        const float v = to_float(x[j]), d = to_float(dy[j]);
        d_gamma[j] += d * (v * r);
        along += d * gamma.get(j) * v;
      }
      along = warp_sum(along) * r / count;
      for (int64_t j = lane_id(); j < h.dim; j += 32)
        dx[j] = from_float<T>(r * (to_float(dy[j]) * gamma.get(j) - to_float(x[j]) * r * along));
    }
}

Heads heads_of(const OpCall& call) {
  const auto a = call.get<HeadsAttr>();
  return {a.query_heads, a.kv_heads, a.head_dim};
}
constexpr int kWarps = kThreads / 32;

}  // namespace

void qk_norm(const OpCall& call, CudaLaunchContext& context) {
  const Heads h = heads_of(call);
  const int64_t tokens = call[0].shape[0], heads = h.query + 2 * h.key;
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(normalise_heads<T>, blocks_for(tokens * heads, kWarps, most_blocks(context)), kThreads,
           0, context.stream, data<const T>(call[0]), any_real(call[1]), any_real(call[2]),
           data<T>(call[3]), data<float>(call[4]), tokens, h,
           static_cast<float>(call.get<HeadsAttr>().epsilon));
  });
}

void qk_norm_backward(const OpCall& call, CudaLaunchContext& context) {
  const Heads h = heads_of(call);
  const int64_t tokens = call[0].shape[0];
  if (tokens == 0) return;
  // As many warps as two blocks on each part of a reduction have.
  const int64_t most = kParts * kWarps, per_warp = (tokens + most - 1) / most;
  const int64_t warps = (tokens + per_warp - 1) / per_warp;
  float* sums = take<float>(context, warps * 2 * h.dim);
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(heads_gradient<T>, (warps + kWarps - 1) / kWarps, kThreads, 0, context.stream,
           data<const T>(call[0]), any_real(call[1]), any_real(call[2]), data<const float>(call[3]),
           data<const T>(call[4]), data<T>(call[5]), sums, tokens, per_warp, h);
  });
  add_sums(context, sums, warps, 2 * h.dim, 0, h.dim, any_real(call[6]));
  add_sums(context, sums, warps, 2 * h.dim, h.dim, h.dim, any_real(call[7]));
}

}  // namespace moetwin::cuda_ops
