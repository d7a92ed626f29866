#include "core/moe/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "core/moe/portable_math.h"

namespace moetwin {

namespace {

using Weights = std::vector<double>;

struct Place {
  const RoutingConfig& routing;
  uint64_t seed;
  int64_t step, layer, source, sources, tokens, top_k, experts, columns;

  const WorkloadConfig& workload() const { return routing.workload; }
  int64_t period() const { return (step - 1) / workload().period_steps; }
  int64_t in_period() const { return (step - 1) % workload().period_steps; }
  PhiloxKey key() const {
    return philox_key(seed, Purpose::workload, static_cast<uint32_t>(layer), 0);
  }
  int64_t seeded_expert() const { return philox_below(key(), 0, static_cast<uint32_t>(experts)); }
};

/// `fraction` evenly on the marked experts, the rest evenly on the others; everything on one side
/// when the other is empty.
Weights hot_weights(const std::vector<bool>& hot, double fraction) {
  const auto marked = static_cast<double>(std::count(hot.begin(), hot.end(), true));
  const double others = static_cast<double>(hot.size()) - marked;
  if (marked == 0) fraction = 0;
  if (others == 0) fraction = 1;
  Weights weights(hot.size());
  for (size_t i = 0; i < hot.size(); ++i)
    weights[i] = hot[i] ? fraction / marked : (1 - fraction) / others;
  return weights;
}

Weights hot_set(const Place& at, int64_t first, int64_t stride) {
  std::vector<bool> hot(static_cast<size_t>(at.experts));
  // A stride that comes round to a marked expert goes on with the next free one.
  for (int64_t i = 0, e = first % at.experts; i < at.workload().hot_experts; ++i) {
    while (hot[static_cast<size_t>(e)]) e = (e + 1) % at.experts;
    hot[static_cast<size_t>(e)] = true;
    e = (e + stride) % at.experts;
  }
  return hot_weights(hot, at.workload().hot_fraction);
}

Weights hot_column(const Place& at, double fraction) {
  const int64_t width = at.experts / at.columns;
  const int64_t column = at.workload().hot_rank % at.columns;
  std::vector<bool> hot(static_cast<size_t>(at.experts));
  for (int64_t e = 0; e < width; ++e) hot[static_cast<size_t>(column * width + e)] = true;
  return hot_weights(hot, fraction);
}

Weights zero_experts(const Place& at) {
  const int64_t rest = at.experts - at.workload().zero_experts;
  if (rest < at.top_k)
    throw Error(ErrorClass::configuration,
                fmt::format("routing.workload.zero_experts: W5 leaves {} of {} experts, fewer than "
                            "top_k {}; legal values: 0 to {}",
                            rest, at.experts, at.top_k, at.experts - at.top_k));
  Weights weights(static_cast<size_t>(at.experts), 1.0);
  std::fill(weights.begin() + rest, weights.end(), 0.0);
  return weights;
}

Weights log_normal(const Place& at) {
  const double target = 1 + at.workload().max_violation;
  const double largest = static_cast<double>(at.experts) / static_cast<double>(at.top_k);
  if (target > largest)
    throw Error(
        ErrorClass::configuration,
        fmt::format("routing.workload.max_violation: W8 cannot reach {} with {} experts and "
                    "top_k {}: one expert gets at most every token; legal values: 0 to {}",
                    at.workload().max_violation, at.experts, at.top_k, largest - 1));
  const size_t n = static_cast<size_t>(at.experts);
  Weights normal(n), weights(n);
  for (size_t i = 0; i < n; ++i) normal[i] = philox_normal(at.key(), i);
  const double top = *std::max_element(normal.begin(), normal.end());
  const auto max_over_mean = [&](double sigma) {
    // Relative to the largest, so that nothing overflows.
    for (size_t i = 0; i < n; ++i) weights[i] = portable_exp(sigma * (normal[i] - top));
    return static_cast<double>(n) / std::accumulate(weights.begin(), weights.end(), 0.0);
  };
  double low = 0, high = 1;
  while (max_over_mean(high) < target && high < 1e6) high *= 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (max_over_mean(middle) < target ? low : high) = middle;
  }
  max_over_mean(high);
  return weights;
}

Weights oscillating(const Place& at) {
  const WorkloadConfig& w = at.workload();
  const double swing = w.amplitude * portable_cos_turn(at.in_period(), w.period_steps);
  Weights weights(static_cast<size_t>(at.experts), 1.0);
  for (int64_t i = 0; i + 1 < at.experts || (i < at.experts && at.experts % 2 == 0); ++i)
    weights[static_cast<size_t>(i)] = 1 + (i % 2 == 0 ? swing : -swing);
  return weights;
}

Weights one_hot_rank(const Place& at) {
  const double f = at.workload().hot_fraction;
  const double share = f + (1 - f) / static_cast<double>(at.columns);
  return hot_column(at, share);
}

Weights weights_of(const Place& at) {
  const std::string& w = at.routing.source;
  const int64_t width = at.experts / at.columns;
  if (w == "uniform" || w == "W0" || w == "W4")
    return Weights(static_cast<size_t>(at.experts), 1.0);
  if (w == "W1") return hot_set(at, at.seeded_expert(), 1);
  if (w == "W2") return hot_column(at, at.workload().hot_fraction);
  if (w == "W3") return hot_set(at, at.seeded_expert(), width);
  if (w == "W5") return zero_experts(at);
  if (w == "W6") return hot_set(at, at.period() * at.workload().hot_experts, 1);
  if (w == "W7")
    return at.in_period() < at.workload().burst_steps
               ? hot_set(at, at.seeded_expert(), 1)
               : Weights(static_cast<size_t>(at.experts), 1.0);
  if (w == "W8") return log_normal(at);
  if (w == "W9") return oscillating(at);
  if (w == "W11") return one_hot_rank(at);
  throw Error(ErrorClass::configuration,
              fmt::format("routing.source: \"{}\" is no scripted workload; legal values: uniform, "
                          "W0 to W11, trace, proxy",
                          w));
}

}  // namespace

std::vector<int64_t> apportion(const std::vector<double>& weights, int64_t total, int64_t cap,
                               int64_t first_tie) {
  const auto n = static_cast<int64_t>(weights.size());
  require(total >= 0 && total <= cap * n, "shares fit under the cap");
  std::vector<int64_t> counts(weights.size());
  std::vector<bool> full(weights.size());
  int64_t left = total, open = n;
  Weights ideal(weights.size());
  // Each round fills every expert whose share is above the cap; the others share what is left.
  for (bool again = true; again;) {
    again = false;
    double sum = 0;
    for (size_t i = 0; i < weights.size(); ++i) sum += full[i] ? 0 : weights[i];
    for (size_t i = 0; i < weights.size(); ++i)
      if (!full[i])
        ideal[i] = sum > 0 ? weights[i] / sum * static_cast<double>(left)
                           : static_cast<double>(left) / static_cast<double>(open);
    for (size_t i = 0; i < weights.size(); ++i) {
      if (full[i] || ideal[i] <= static_cast<double>(cap)) continue;
      full[i] = again = true;
      counts[i] = cap;
      left -= cap, --open;
    }
  }
  struct Fraction {
    double size;
    int64_t turn;
    size_t index;
  };
  std::vector<Fraction> fractions;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (full[i]) continue;
    // Shares that are whole but for rounding stay whole; a millionth of a token decides nothing.
    const auto whole = static_cast<int64_t>(ideal[i] + 1e-6);
    counts[i] = std::min(whole, cap);
    left -= counts[i];
    const double rest = std::max(0.0, ideal[i] - static_cast<double>(counts[i]));
    fractions.push_back({static_cast<double>(static_cast<int64_t>(rest * 1e6 + 0.5)),
                         (static_cast<int64_t>(i) - first_tie % n + n) % n, i});
  }
  std::sort(fractions.begin(), fractions.end(), [](const Fraction& a, const Fraction& b) {
    return a.size != b.size ? a.size > b.size : a.turn < b.turn;
  });
  for (bool gave = true; left > 0 && gave;) {
    gave = false;
    for (const Fraction& f : fractions) {
      if (left == 0) break;
      if (counts[f.index] < cap) ++counts[f.index], --left, gave = true;
    }
  }
  // Only rounding of many whole shares can take too much.
  for (auto f = fractions.rbegin(); left < 0 && f != fractions.rend(); ++f)
    if (counts[f->index] > 0) --counts[f->index], ++left;
  require(left == 0, "every assignment is given out");
  return counts;
}

int64_t scripted_tokens(const RoutingConfig& routing, int64_t source, int64_t sources,
                        int64_t tokens) {
  if (routing.source != "W4" || sources < 2) return tokens;
  const double place = static_cast<double>(source) / static_cast<double>(sources - 1);
  const double share = 1 - (1 - 1 / routing.workload.ragged_ratio) * place;
  return static_cast<int64_t>(share * static_cast<double>(tokens) + 0.5);
}

std::vector<int64_t> scripted_counts(const RoutingConfig& routing, uint64_t seed, int64_t step,
                                     int64_t layer, int64_t source, int64_t sources, int64_t tokens,
                                     int64_t top_k, int64_t experts, int64_t columns,
                                     const RoutingTrace* trace) {
  require(
      step >= 1 && source >= 0 && source < sources && top_k <= experts && experts % columns == 0,
      "sizes of a scripted workload");
  const int64_t total = scripted_tokens(routing, source, sources, tokens) * top_k;
  // Each source's left-over begins where that of the source before ended.
  int64_t first_tie = (source % experts) * (total % experts) % experts;
  if (routing.source == "W4") {
    first_tie = 0;
    for (int64_t r = 0; r < source; ++r)
      first_tie = (first_tie + scripted_tokens(routing, r, sources, tokens) * top_k) % experts;
  }
  if (routing.source == "trace" || routing.source == "W10" || routing.source == "proxy") {
    require(trace != nullptr, "a trace workload has its trace");
    return apportion(trace->shares(step, layer, source, sources, total, seed), total, tokens,
                     first_tie);
  }
  const Place at{routing, seed, step, layer, source, sources, tokens, top_k, experts, columns};
  return apportion(weights_of(at), total, tokens, first_tie);
}

}  // namespace moetwin
