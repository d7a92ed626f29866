// router_losses: sums over chunks of tokens, then over chunks, in doubles and in fixed order.

#include "backends/cuda/ops/host.h"
#include "backends/cuda/ops/router_sums.cuh"
#include "core/ops/router.h"

namespace moetwin::cuda_ops {
namespace {

/// Of one chunk of tokens: sums of normalised scores and of scores per expert, and of squared
/// logsumexp.
__global__ void chunk_sums(const float* logits, const float* probs, Chunks c, Score score,
                           double* shares, double* scores, double* z) {
  float* total = reinterpret_cast<float*>(shared_memory());  // of each token's scores
  const int64_t first = c.first(block_id()), tokens = c.size(block_id());
  double squares = 0;
  for (int64_t t = warp_id(); t < tokens; t += warp_count()) {
    const float* x = logits + (first + t) * c.experts;
    const float* p = probs + (first + t) * c.experts;
    float top = -INFINITY, sum = 0, of_scores = 0;
    for (int64_t e = lane_id(); e < c.experts; e += 32) top = x[e] > top ? x[e] : top;
    top = warp_max(top);
    for (int64_t e = lane_id(); e < c.experts; e += 32) {
      sum += expf(x[e] - top);
      of_scores += p[e];
    }
    const double lse = static_cast<double>(top + logf(warp_sum(sum)));
    of_scores = score == Score::softmax ? 1.0f : warp_sum(of_scores);
    if (lane_id() != 0) continue;
    total[t] = of_scores;
    squares += lse * lse;
  }
  sync_block();
  for (int64_t e = thread_id(); e < c.experts; e += thread_count()) {
    double share = 0, sum = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      const float p = probs[(first + t) * c.experts + e];
      // All scores 0 (a sigmoid far below): the token is counted as undecided.
      share +=
          total[t] > 0 ? static_cast<double>(p / total[t]) : 1.0 / static_cast<double>(c.experts);
      sum += static_cast<double>(p);
    }
    shares[block_id() * c.experts + e] = share;
    scores[block_id() * c.experts + e] = sum;
  }
  squares = block_sum(squares);
  if (thread_id() == 0) z[block_id()] = squares;
}

__global__ void join_losses(const double* shares, const double* scores, const double* z, Chunks c,
                            const int* counts, const int64_t* global, RouterLossAttr a,
                            float* losses) {
  const double tokens = static_cast<double>(c.tokens), experts = static_cast<double>(c.experts);
  double balance = 0;
  for (int64_t i = thread_id(); i < c.scopes * c.experts; i += thread_count()) {
    const int64_t scope = i / c.experts, e = i % c.experts;
    double share = 0;
    for (int64_t chunk = scope * c.per_scope; chunk < (scope + 1) * c.per_scope; ++chunk)
      share += shares[chunk * c.experts + e];
    balance +=
        share_of(a, global, counts[i], e, c.rows) * share * experts / static_cast<double>(c.rows);
  }
  balance = block_sum(balance);
  for (int64_t e = thread_id(); e < c.experts; e += thread_count())
    losses[4 + e] += static_cast<float>(c.total(shares, e));
  double squares = 0, total = 0;
  for (int64_t i = thread_id(); i < c.count(); i += thread_count()) squares += z[i];
  squares = block_sum(squares);
  for (int64_t e = thread_id(); e < c.experts; e += thread_count()) total += c.total(scores, e);
  const double average = block_sum(total) / experts;
  // Of its own assignments, whatever the balance loss counts.
  double load = 0;
  for (int64_t e = thread_id(); e < c.experts; e += thread_count()) load += c.load(counts, e);
  const double load_mean = block_sum(load) / experts;
  double spread = 0, load_spread = 0;
  for (int64_t e = thread_id(); e < c.experts; e += thread_count()) {
    const double d = c.total(scores, e) - average, l = c.load(counts, e) - load_mean;
    spread += d * d;
    load_spread += l * l;
  }
  spread = block_sum(spread);
  load_spread = block_sum(load_spread);
  if (thread_id() != 0) return;
  losses[0] += static_cast<float>(a.weight * (balance * static_cast<double>(c.rows) / tokens));
  losses[1] += static_cast<float>(a.weight * (squares / tokens));
  losses[2] +=
      static_cast<float>(a.weight * (average > 0 ? spread / experts / (average * average) : 0.0));
  losses[3] += static_cast<float>(a.weight * (load_spread / experts));
}

}  // namespace

void router_losses(const OpCall& call, CudaLaunchContext& context) {
  const auto a = call.get<RouterLossAttr>();
  const Chunks c = chunks_of(call[0], a.rows_per_scope);
  if (c.tokens == 0) return;
  const int64_t sums = c.count() * c.experts;
  double *shares = take<double>(context, sums), *scores = take<double>(context, sums);
  double* z = take<double>(context, c.count());
  const int* counts = count_choices(context, call[2], c, a.top_k);
  launch(chunk_sums, c.count(), kThreads, kChunk * static_cast<int64_t>(sizeof(float)),
         context.stream, data<const float>(call[0]), data<const float>(call[1]), c, a.score, shares,
         scores, z);
  launch(join_losses, 1, kThreads, 0, context.stream, shares, scores, z, c, counts,
         data<const int64_t>(call[3]), a, data<float>(call[4]));
}

}  // namespace moetwin::cuda_ops
