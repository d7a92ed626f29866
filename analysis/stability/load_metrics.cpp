#include "analysis/stability/load_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/stability/oscillation.h"

namespace moetwin {

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// Sums of rows [from, to) as whole numbers; counts in files are whole.
std::vector<int64_t> summed(const LayerSeries& layer, int64_t from, int64_t to) {
  std::vector<int64_t> sum(static_cast<size_t>(layer.experts));
  for (int64_t t = from; t < to; ++t)
    for (int64_t e = 0; e < layer.experts; ++e)
      sum[static_cast<size_t>(e)] +=
          std::llround(layer.load[static_cast<size_t>(t * layer.experts + e)]);
  return sum;
}

RoutingMetrics metrics_of(const std::vector<int64_t>& counts, double kept, int64_t columns) {
  std::vector<int64_t> ranks;
  const auto experts = static_cast<int64_t>(counts.size());
  if (columns > 0 && experts % columns == 0) {
    ranks.resize(static_cast<size_t>(columns));
    for (int64_t e = 0; e < experts; ++e)
      ranks[static_cast<size_t>(e / (experts / columns))] += counts[static_cast<size_t>(e)];
  }
  int64_t total = 0;
  for (int64_t n : counts) total += n;
  return routing_metrics(counts, std::isnan(kept) ? total : std::llround(kept), ranks);
}

double mean_known(const std::vector<double>& v, size_t from, size_t to) {
  double sum = 0;
  int64_t known = 0;
  for (size_t i = from; i < std::min(to, v.size()); ++i)
    if (!std::isnan(v[i])) sum += v[i], ++known;
  return known ? sum / static_cast<double>(known) : kUnknown;
}

void add_probe(const LayerSeries& layer, const StabilityOptions& options, LoadMetrics& m) {
  const ProbeSeries& probe = layer.probe;
  const size_t n = probe.size();
  const size_t from = n - static_cast<size_t>(judged_rows(static_cast<int64_t>(n), options));
  m.churn = mean_known(probe.churn, from, n);
  m.router_entropy = mean_known(probe.router_entropy, from, n);
  m.logit_std = mean_known(probe.logit_std, from, n);
  m.logit_std_first = mean_known(probe.logit_std, 0, std::max<size_t>(1, n / 20));
  m.harm = mean_known(probe.harm, from, n);
  m.bias_flips = kUnknown;
  const auto width = static_cast<size_t>(layer.experts);
  if (probe.bias.size() != n * width || n - from < 3) return;
  int64_t flips = 0, turns = 0;
  for (size_t t = from + 2; t < n; ++t)
    for (size_t e = 0; e < width; ++e) {
      const double before = probe.bias[(t - 1) * width + e] - probe.bias[(t - 2) * width + e];
      const double now = probe.bias[t * width + e] - probe.bias[(t - 1) * width + e];
      if (before == 0 && now == 0) continue;
      ++turns;
      flips += before * now < 0;
    }
  if (turns) m.bias_flips = static_cast<double>(flips) / static_cast<double>(turns);
}

void add_sources(const LayerSeries& layer, LoadMetrics& m) {
  const SourceCounts& s = layer.sources;
  double least = std::numeric_limits<double>::infinity(), most = 0;
  const auto width = static_cast<size_t>(layer.experts);
  for (size_t r = 0; r < s.ranks.size(); ++r) {
    double sum = 0;
    for (size_t e = 0; e < width; ++e) sum += s.assigned[r * width + e];
    least = std::min(least, sum);
    most = std::max(most, sum);
  }
  if (most > 0) m.source_ratio = least > 0 ? most / least : std::numeric_limits<double>::infinity();
}

}  // namespace

LoadMetrics load_metrics(const LayerSeries& layer, const StabilityOptions& options) {
  LoadMetrics m;
  m.layer = layer.layer;
  m.experts = layer.experts;
  add_probe(layer, options, m);
  add_sources(layer, m);
  const auto n = static_cast<int64_t>(layer.size());
  if (n == 0) return m;
  const int64_t from = n - judged_rows(n, options), width = n - from;
  m.first_step = layer.steps[static_cast<size_t>(from)];
  m.last_step = layer.steps.back();
  double kept_all = 0, assigned_all = 0;
  m.per_step = RoutingMetrics{0, 0, 0, 0, 0, 0};
  for (int64_t t = from; t < n; ++t) {
    const std::vector<int64_t> counts = summed(layer, t, t + 1);
    const double kept = layer.kept[static_cast<size_t>(t)];
    m.per_step += metrics_of(counts, kept, options.expert_columns);
    for (int64_t c : counts) assigned_all += static_cast<double>(c);
    kept_all += kept;
  }
  m.per_step = m.per_step / static_cast<double>(width);
  m.assignments = assigned_all / static_cast<double>(width);
  m.dropped_share = assigned_all > 0 ? 1 - kept_all / assigned_all : kUnknown;
  const std::vector<int64_t> total = summed(layer, from, n);
  m.mean_load = metrics_of(total, kUnknown, options.expert_columns);

  const auto experts = static_cast<double>(layer.experts);
  const double mean = assigned_all / experts;
  for (size_t e = 0; e < total.size(); ++e) {
    const auto load = static_cast<double>(total[e]);
    // Fewer than 50 expected assignments show nothing about one expert.
    if (mean >= 50 && load < 0.01 * mean) m.dead.push_back(static_cast<int64_t>(e));
    if (load > 1.5 * mean) m.hot.push_back(static_cast<int64_t>(e));
    m.starved_share += load < 0.1 * mean ? 1 / experts : 0;
  }
  if (m.assignments > 0)
    m.block_steps = std::clamp<int64_t>(
        static_cast<int64_t>(std::ceil(100 * (experts - 1) / m.assignments)), 1, width);
  int64_t blocks = 0, bursts = 0;
  std::vector<double> highest_of;
  m.block_max = 0;
  for (int64_t end = n; end - m.block_steps >= from; end -= m.block_steps, ++blocks) {
    const std::vector<int64_t> counts = summed(layer, end - m.block_steps, end);
    const double highest = max_over_mean(counts);
    m.block_cv += coefficient_of_variation(counts);
    m.block_max += highest;
    bursts += highest > options.burst_max;
    highest_of.push_back(highest);
  }
  m.block_cv /= static_cast<double>(blocks);
  m.block_max /= static_cast<double>(blocks);
  m.burst_time = static_cast<double>(bursts) / static_cast<double>(blocks);
  std::sort(highest_of.begin(), highest_of.end());
  m.usual_max = highest_of[highest_of.size() / 2];
  return m;
}

}  // namespace moetwin
