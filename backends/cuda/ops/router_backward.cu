// router_backward: a warp per token, after the sums over tokens that its losses need.

#include "backends/cuda/ops/host.h"
#include "backends/cuda/ops/router_sums.cuh"
#include "backends/cuda/ops/router_weights.cuh"
#include "core/ops/router.h"

namespace moetwin::cuda_ops {
namespace {

__global__ void add_choices(const int32_t* ids, int* counts, int64_t assignments, int64_t per_scope,
                            int64_t experts) {
  for (int64_t i = grid_thread(); i < assignments; i += grid_threads())
    if (ids[i] >= 0) atomic_add(counts + i / per_scope * experts + ids[i], 1);
}

__global__ void chunk_scores(const float* probs, Chunks c, double* scores) {
  const int64_t first = c.first(block_id()), tokens = c.size(block_id());
  for (int64_t e = thread_id(); e < c.experts; e += thread_count()) {
    double sum = 0;
    for (int64_t t = 0; t < tokens; ++t)
      sum += static_cast<double>(probs[(first + t) * c.experts + e]);
    scores[block_id() * c.experts + e] = sum;
  }
}
/// CV^2 = E sum I^2 / (sum I)^2 - 1, so d/dI_i = 2 E / S^2 (I_i - sum I^2 / S), S = sum I.
__global__ void importance_gradient(const double* scores, Chunks c, double factor, float* out) {
  double sum = 0, squares = 0;
  for (int64_t e = thread_id(); e < c.experts; e += thread_count()) {
    const double total = c.total(scores, e);
    sum += total;
    squares += total * total;
  }
  sum = block_sum(sum);
  squares = block_sum(squares);
  for (int64_t e = thread_id(); e < c.experts; e += thread_count())
    out[e] = sum > 0 ? static_cast<float>(factor * 2 * static_cast<double>(c.experts) /
                                          (sum * sum) * (c.total(scores, e) - squares / sum))
                     : 0.0f;
}

/// d[e] += gradient of the task loss through the weights of the chosen experts.
__device__ void from_weights(const RouterLossAttr& a, const float* p, const int32_t* ids,
                             const float* d_weights, float* d) {
  const float scale = static_cast<float>(a.weight_scale), power = static_cast<float>(a.p_norm);
  const int k = static_cast<int>(a.top_k);
  const auto chosen = [&](int j) { return ids[j] >= 0 ? p[ids[j]] : 0.0f; };
  if (power <= 0) {
    for (int j = lane_id(); j < k; j += 32)
      if (ids[j] >= 0) d[ids[j]] += scale * d_weights[j];
    return;
  }
  if (k == 1) return;  // the weight is a constant
  const float norm = score_norm(chosen, k, power);
  if (!(norm > 0)) return;
  // w_j = scale u_j, u_j = s_j / norm: dw_j/ds_i = scale / norm (delta_ij - u_j u_i^(p-1)).
  float along = 0;
  for (int j = 0; j < k; ++j) along += d_weights[j] * (chosen(j) / norm);
  for (int j = lane_id(); j < k; j += 32) {
    if (ids[j] < 0) continue;
    const float u = chosen(j) / norm;
    // Below p = 1 the power of a score that is too small to be told from 0 has no bound, but the
    // score's own derivative by its logit goes to 0 faster.
    const bool lost = power < 1.0f && !(u > 1.17549435e-38f);
    const float slope = power == 1.0f   ? 1.0f
                        : power == 2.0f ? u
                        : lost          ? 0.0f
                                        : powf(u, power - 1.0f);
    d[ids[j]] += scale / norm * (d_weights[j] - along * slope);
  }
}

struct Inputs {
  const float *logits, *probs, *d_weights, *importance;
  const int32_t* ids;
  const int* counts;  ///< per scope and expert; null without a balance loss
  const int64_t* global;
};

__global__ void logit_gradient(Inputs in, RouterLossAttr a, int64_t tokens, int64_t experts,
                               int64_t rows, float* d_logits) {
  float* d = reinterpret_cast<float*>(shared_memory()) + warp_id() * experts;
  const int64_t warps = block_count() * warp_count();
  const double over_tokens = a.aux * static_cast<double>(experts) / static_cast<double>(tokens);
  for (int64_t t = block_id() * warp_count() + warp_id(); t < tokens; t += warps) {
    const float* p = in.probs + t * experts;
    float* out = d_logits + t * experts;
    for (int64_t e = lane_id(); e < experts; e += 32)
      d[e] = in.importance ? in.importance[e] : 0.0f;
    sync_warp();
    from_weights(a, p, in.ids + t * a.top_k, in.d_weights + t * a.top_k, d);
    sync_warp();
    if (in.counts) {
      // Of P_i = mean of p_i / sum p: (g_i - g . p / sum) / sum; softmax scores sum to 1 already.
      const int* counts = in.counts + t / rows * experts;
      const auto balance = [&](int64_t e) {
        return static_cast<float>(over_tokens * share_of(a, in.global, counts[e], e, rows));
      };
      float sum = 1, along = 0;
      if (a.score == Score::sigmoid) {
        sum = 0;
        for (int64_t e = lane_id(); e < experts; e += 32) {
          sum += p[e];
          along += balance(e) * p[e];
        }
        sum = warp_sum(sum);
        along = warp_sum(along);
        along = sum > 0 ? along / sum : 0.0f;
      }
      for (int64_t e = lane_id(); e < experts && sum > 0; e += 32)
        d[e] += (balance(e) - along) / sum;
    }
    if (a.score == Score::softmax) {
      float along = 0;
      for (int64_t e = lane_id(); e < experts; e += 32) along += d[e] * p[e];
      along = warp_sum(along);
      for (int64_t e = lane_id(); e < experts; e += 32) d[e] = p[e] * (d[e] - along);
    } else {
      for (int64_t e = lane_id(); e < experts; e += 32) d[e] = d[e] * p[e] * (1.0f - p[e]);
    }
    if (a.z != 0) {
      const float* x = in.logits + t * experts;
      float top = -INFINITY, sum = 0;
      for (int64_t e = lane_id(); e < experts; e += 32) top = x[e] > top ? x[e] : top;
      top = warp_max(top);
      for (int64_t e = lane_id(); e < experts; e += 32) sum += expf(x[e] - top);
      sum = warp_sum(sum);
      const float factor =
          static_cast<float>(2 * a.z / static_cast<double>(tokens)) * (top + logf(sum)) / sum;
      for (int64_t e = lane_id(); e < experts; e += 32) d[e] += factor * expf(x[e] - top);
    }
    for (int64_t e = lane_id(); e < experts; e += 32) out[e] = d[e];
    sync_warp();
  }
}

}  // namespace

const int* count_choices(CudaLaunchContext& context, const Tensor& ids, const Chunks& c,
                         int64_t top_k) {
  const int64_t n = c.scopes * c.experts, assignments = c.tokens * top_k;
  int* counts = take<int>(context, n);
  clear(context, counts, n * static_cast<int64_t>(sizeof(int)));
  launch(add_choices, blocks_for(assignments, kThreads, most_blocks(context)), kThreads, 0,
         context.stream, data<const int32_t>(ids), counts, assignments, c.rows * top_k, c.experts);
  return counts;
}

void router_backward(const OpCall& call, CudaLaunchContext& context) {
  const auto a = call.get<RouterLossAttr>();
  const Chunks c = chunks_of(call[0], a.rows_per_scope);
  if (c.tokens == 0) return;
  Inputs in = {data<const float>(call[0]),   data<const float>(call[1]),
               data<const float>(call[4]),   nullptr,
               data<const int32_t>(call[2]), nullptr,
               data<const int64_t>(call[5])};
  if (a.importance != 0) {
    double* scores = take<double>(context, c.count() * c.experts);
    float* importance = take<float>(context, c.experts);
    launch(chunk_scores, c.count(), row_threads(c.experts, 1), 0, context.stream, in.probs, c,
           scores);
    launch(importance_gradient, 1, kThreads, 0, context.stream, scores, c, a.importance,
           importance);
    in.importance = importance;
  }
  if (a.aux != 0) in.counts = count_choices(context, call[2], c, a.top_k);
  const int64_t row = c.experts * static_cast<int64_t>(sizeof(float));
  int warps = kThreads / 32;
  while (warps > 1 && warps * row > 48 * 1024) --warps;
  launch(logit_gradient, blocks_for(c.tokens, warps, most_blocks(context)), warps * 32, warps * row,
         context.stream, in, a, c.tokens, c.experts, c.rows, data<float>(call[6]));
}

}  // namespace moetwin::cuda_ops
