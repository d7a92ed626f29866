// router_select: noise, scores, group limit, top-k, weights and histogram in one pass, a warp per
// token.

#include "backends/cuda/ops/host.h"
#include "backends/cuda/ops/router_weights.cuh"
#include "core/base/philox.h"
#include "core/ops/router.h"

namespace moetwin::cuda_ops {
namespace {

constexpr int64_t kNobody = 0x7f7f7f7f7f7f7f7f;  ///< memory filled with 0x7f

struct Select {
  SelectAttr attr;
  int experts, top_k, groups, kept_groups;
};

/// Key of what has been chosen or ruled out already.
constexpr uint32_t kTaken = 0;

/// probs of the warp's token, from its logits in `value`; also leaves them in `value`.
__device__ void score(const Select& s, float* value, float* probs) {
  if (s.attr.score == Score::sigmoid) {
    for (int e = lane_id(); e < s.experts; e += 32) {
      // For x < 0 as e^x / (1 + e^x): tiny scores keep their digits.
      const float x = value[e], small = expf(-fabsf(x));
      value[e] = (x < 0 ? small : 1.0f) / (1.0f + small);
      probs[e] = value[e];
    }
    return;
  }
  float top = -INFINITY, sum = 0;
  for (int e = lane_id(); e < s.experts; e += 32) top = value[e] > top ? value[e] : top;
  top = warp_max(top);
  for (int e = lane_id(); e < s.experts; e += 32) {
    value[e] = expf(value[e] - top);
    sum += value[e];
  }
  sum = warp_sum(sum);
  for (int e = lane_id(); e < s.experts; e += 32) {
    value[e] /= sum;
    probs[e] = value[e];
  }
}

/// Keys of experts outside the best groups become kTaken.
__device__ void limit_groups(const Select& s, uint32_t* keys, const float* biased,
                             float* group_scores, uint32_t* group_keys) {
  const int size = s.experts / s.groups;
  for (int g = lane_id(); g < s.groups; g += 32) {
    float first = -INFINITY, second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      const float x = biased[e];
      if (x > first)
        second = first, first = x;
      else if (x > second)
        second = x;
    }
    group_scores[g] = size == 1 ? first : first + second;
    group_keys[g] = order_key(group_scores[g]);
  }
  sync_warp();
  for (int i = 0; i < s.kept_groups; ++i) {
    const int best = warp_best(s.groups, [&](int g) { return group_keys[g]; });
    sync_warp();
    if (lane_id() == 0) group_keys[best] = kTaken;
    sync_warp();
  }
  for (int e = lane_id(); e < s.experts; e += 32)
    if (group_keys[e / size] != kTaken) keys[e] = kTaken;
  sync_warp();
}

/// Shared memory: a histogram of the block, then per warp scores [E], keys [E], group scores and
/// keys.
__global__ void select_experts(const float* logits, const float* bias, float* probs, float* weights,
                               int32_t* ids, int64_t* counts, int64_t* first_bad, int64_t tokens,
                               Select s) {
  int* histogram = reinterpret_cast<int*>(shared_memory());
  const int per_warp = 2 * s.experts + 2 * s.groups;
  float* value = reinterpret_cast<float*>(histogram + s.experts) + warp_id() * per_warp;
  uint32_t* keys = reinterpret_cast<uint32_t*>(value + s.experts);
  float* group_scores = value + 2 * s.experts;
  uint32_t* group_keys = reinterpret_cast<uint32_t*>(group_scores + s.groups);
  for (int e = thread_id(); e < s.experts; e += thread_count()) histogram[e] = 0;
  sync_block();
  const int64_t warps = block_count() * warp_count();
  for (int64_t t = block_id() * warp_count() + warp_id(); t < tokens; t += warps) {
    const float* x = logits + t * s.experts;
    float* p = probs + t * s.experts;
    bool finite = true;
    for (int e = lane_id(); e < s.experts; e += 32) {
      value[e] = x[e];
      finite = finite && value[e] - value[e] == 0;  // NaN for Inf and NaN
    }
    if (warp_ballot(!finite) != 0) {
      // The step will stop; until then the row has distinct experts and no weight.
      if (lane_id() == 0) atomic_min(first_bad, t + 1);
      for (int e = lane_id(); e < s.experts; e += 32) p[e] = 0;
      for (int j = lane_id(); j < s.top_k; j += 32) {
        weights[t * s.top_k + j] = 0;
        ids[t * s.top_k + j] = j;
        atomic_add(histogram + j, 1);
      }
      continue;
    }
    if (s.attr.noise != Noise::none && s.attr.noise_scale != 0)
      for (int e = lane_id(); e < s.experts; e += 32) {
        const uint64_t index = static_cast<uint64_t>((s.attr.first_token + t) * s.experts + e);
        const double draw = s.attr.noise == Noise::gaussian
                                ? philox_normal(s.attr.noise_key, index)
                                : philox_gumbel(s.attr.noise_key, index);
        value[e] += static_cast<float>(s.attr.noise_scale * draw);
      }
    score(s, value, p);
    for (int e = lane_id(); e < s.experts; e += 32) {
      if (bias) value[e] += bias[e];
      keys[e] = order_key(value[e]);
    }
    sync_warp();
    if (s.kept_groups < s.groups) limit_groups(s, keys, value, group_scores, group_keys);
    for (int j = 0; j < s.top_k; ++j) {
      const int best = warp_best(s.experts, [&](int e) { return keys[e]; });
      sync_warp();
      if (lane_id() == 0) {
        keys[best] = kTaken;
        ids[t * s.top_k + j] = best;
        atomic_add(histogram + best, 1);
        value[best] = p[best];  // the score again, without the bias
      }
      sync_warp();
    }
    const int32_t* mine = ids + t * s.top_k;
    const auto chosen = [&](int j) { return value[mine[j]]; };
    const float scale = static_cast<float>(s.attr.weight_scale);
    const float power = static_cast<float>(s.attr.p_norm);
    const float norm = power > 0 ? score_norm(chosen, s.top_k, power) : 1.0f;
    for (int j = lane_id(); j < s.top_k; j += 32)
      weights[t * s.top_k + j] = norm > 0 ? scale * (chosen(j) / norm) : 0.0f;
    sync_warp();
  }
  sync_block();
  for (int e = thread_id(); e < s.experts; e += thread_count())
    if (histogram[e] != 0) atomic_add(counts + e, static_cast<int64_t>(histogram[e]));
}

__global__ void mark_bad(const int64_t* first_bad, int64_t* mark) {
  if (thread_id() == 0) *mark = *first_bad == kNobody ? 0 : *first_bad;
}

}  // namespace

void router_select(const OpCall& call, CudaLaunchContext& context) {
  Select s;
  s.attr = call.get<SelectAttr>();
  const int64_t tokens = call[0].shape[0], experts = call[0].shape[1];
  s.experts = static_cast<int>(experts);
  s.top_k = static_cast<int>(s.attr.top_k);
  s.groups = static_cast<int>(s.attr.groups);
  s.kept_groups = static_cast<int>(s.attr.kept_groups);
  int64_t* counts = data<int64_t>(call[5]);
  int64_t* first_bad = take<int64_t>(context, 1);
  clear(context, counts, call[5].bytes());
  check_cuda(cudaMemsetAsync(first_bad, 0x7f, sizeof(int64_t), context.stream), "clearing memory");
  // As many warps as 48 KiB hold scores of, at least one.
  const int64_t word = 4, per_warp = (2 * experts + 2 * s.attr.groups) * word;
  int warps = kThreads / 32;
  while (warps > 1 && experts * word + warps * per_warp > 48 * 1024) --warps;
  const int64_t shared = experts * word + warps * per_warp;
  if (shared > 160 * 1024)
    throw Error(ErrorClass::capacity, std::to_string(experts) +
                                          " experts do not fit the router's shared memory; legal: "
                                          "up to about 13,000");
  launch(select_experts, blocks_for(tokens, warps, most_blocks(context)), warps * 32, shared,
         context.stream, data<const float>(call[0]), data<const float>(call[1]),
         data<float>(call[2]), data<float>(call[3]), data<int32_t>(call[4]), counts, first_bad,
         tokens, s);
  launch(mark_bad, 1, 32, 0, context.stream, first_bad, counts + experts);
}

}  // namespace moetwin::cuda_ops
