#include "core/base/philox.h"
#include "core/ops/reference/block.h"
#include "core/ops/reference/router_weights.h"
#include "core/ops/reference/table.h"
#include "core/ops/router.h"

namespace moetwin::reference {
namespace ei = Eigen::internal;
namespace {

template <class C>
bool all_finite(const C* x, int64_t n) {
  // x - x is 0 for finite x, else NaN.
  return packet_sum<C>(n, [x](int64_t i, int64_t used) {
           const Packet<C> v = load_n<C>(x + i, used);
           return ei::psub(v, v);
         }) == 0;
}

template <class C>
void add_noise(const SelectAttr& a, int64_t token, int64_t experts, C* logits) {
  if (a.noise == Noise::none || a.noise_scale == 0) return;
  const uint64_t first = static_cast<uint64_t>((a.first_token + token) * experts);
  for (int64_t e = 0; e < experts; ++e) {
    const uint64_t index = first + static_cast<uint64_t>(e);
    const double draw = a.noise == Noise::gaussian ? philox_normal(a.noise_key, index)
                                                   : philox_gumbel(a.noise_key, index);
    logits[e] += static_cast<C>(a.noise_scale * draw);
  }
}

template <class C>
void scores_of(Score score, const C* logits, int64_t n, C* p) {
  if (score == Score::softmax) {
    const C sum = exp_shifted<C>(logits, p, n, C(1), max_of<C>(logits, n));
    for (int64_t e = 0; e < n; ++e) p[e] /= sum;
    return;
  }
  for_packets<C>(n, [&](int64_t i, int64_t used) {
    const Packet<C> one = set1<C>(1), x = load_n<C>(logits + i, used);
    // For x < 0 as e^x / (1 + e^x): tiny scores keep their digits.
    const Packet<C> e = exp_of<C>(ei::pnegate(ei::pabs(x)));
    const Packet<C> top = ei::pselect(ei::pcmp_lt(x, set1<C>(0)), e, one);
    store_n<C>(p + i, ei::pdiv(top, ei::padd(one, e)), used);
  });
}

/// The k largest of n in descending order, ties to the lower index.
template <class C>
void select(const C* value, int64_t n, int64_t k, int32_t* ids) {
  if (k == 1) {
    int64_t best = 0;
    for (int64_t e = 1; e < n; ++e)
      if (value[e] > value[best]) best = e;
    ids[0] = static_cast<int32_t>(best);
    return;
  }
  int64_t held = 0;
  for (int64_t e = 0; e < n; ++e) {
    if (held == k && !(value[e] > value[ids[k - 1]])) continue;
    int64_t at = held < k ? held++ : k - 1;
    for (; at > 0 && value[e] > value[ids[at - 1]]; --at) ids[at] = ids[at - 1];
    ids[at] = static_cast<int32_t>(e);
  }
}

/// Sets the scores of experts outside the kept groups to -inf.
template <class C>
void limit_groups(const SelectAttr& a, int64_t experts, C* biased, C* group_score, int32_t* kept) {
  const C none = -std::numeric_limits<C>::infinity();
  const int64_t size = experts / a.groups;
  for (int64_t g = 0; g < a.groups; ++g) {
    C first = none, second = none;
    for (int64_t e = g * size; e < (g + 1) * size; ++e) {
      if (biased[e] > first)
        second = first, first = biased[e];
      else if (biased[e] > second)
        second = biased[e];
    }
    group_score[g] = size == 1 ? first : first + second;
  }
  select<C>(group_score, a.groups, a.kept_groups, kept);
  for (int64_t g = 0; g < a.groups; ++g)
    if (std::find(kept, kept + a.kept_groups, static_cast<int32_t>(g)) == kept + a.kept_groups)
      std::fill(biased + g * size, biased + (g + 1) * size, none);
}

template <class C>
void run(const ReferenceCall& call) {
  const auto a = call.get<SelectAttr>();
  const int64_t tokens = call[0].shape[0], experts = call[0].shape[1], k = a.top_k;
  const C* bias = call[1].as<const C>();
  int64_t* counts = call[5].as<int64_t>();
  std::fill_n(counts, experts + 1, int64_t{0});
  const Scratch<C> logits(experts), biased(experts), groups(a.groups), chosen(k);
  const Scratch<int32_t> kept(a.kept_groups);
  for (int64_t t = 0; t < tokens; ++t) {
    C *p = call[2].as<C>() + t * experts, *weights = call[3].as<C>() + t * k;
    int32_t* ids = call[4].as<int32_t>() + t * k;
    std::copy_n(call[0].as<const C>() + t * experts, experts, logits.get());
    if (!all_finite<C>(logits.get(), experts)) {
      // The step will stop; until then the row has distinct experts and no weight.
      if (counts[experts] == 0) counts[experts] = t + 1;
      std::fill_n(p, experts, C(0));
      std::fill_n(weights, k, C(0));
      for (int64_t j = 0; j < k; ++j) ids[j] = static_cast<int32_t>(j), ++counts[j];
      continue;
    }
    add_noise<C>(a, t, experts, logits.get());
    scores_of<C>(a.score, logits.get(), experts, p);
    for (int64_t e = 0; e < experts; ++e) biased[e] = bias ? p[e] + bias[e] : p[e];
    if (a.kept_groups < a.groups)
      limit_groups<C>(a, experts, biased.get(), groups.get(), kept.get());
    select<C>(biased.get(), experts, k, ids);
    for (int64_t j = 0; j < k; ++j) chosen[j] = p[ids[j]], ++counts[ids[j]];
    const C scale = static_cast<C>(a.weight_scale);
    const C norm = a.p_norm > 0 ? score_norm<C>(chosen.get(), k, a.p_norm) : C(1);
    for (int64_t j = 0; j < k; ++j) weights[j] = norm > 0 ? scale * (chosen[j] / norm) : C(0);
  }
}

}  // namespace

void router_select(const ReferenceCall& call) {
  with_compute(call[0].dtype, [&]<class C>(C) { run<C>(call); });
}

}  // namespace moetwin::reference
