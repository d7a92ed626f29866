#include "core/record/routing_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moetwin {

namespace {

double sum_of(const std::vector<int64_t>& loads) {
  return static_cast<double>(std::accumulate(loads.begin(), loads.end(), int64_t{0}));
}

}  // namespace

RoutingMetrics& RoutingMetrics::operator+=(const RoutingMetrics& o) {
  load_cv += o.load_cv, imbalance_experts += o.imbalance_experts;
  imbalance_ranks += o.imbalance_ranks, entropy += o.entropy;
  dead_share += o.dead_share, dropped_share += o.dropped_share;
  return *this;
}

RoutingMetrics RoutingMetrics::operator/(double divisor) const {
  return {load_cv / divisor, imbalance_experts / divisor, imbalance_ranks / divisor,
          entropy / divisor, dead_share / divisor,        dropped_share / divisor};
}

double coefficient_of_variation(const std::vector<int64_t>& loads) {
  const double sum = sum_of(loads);
  if (sum == 0) return 0;
  const double mean = sum / static_cast<double>(loads.size());
  double squares = 0;
  for (int64_t n : loads) {
    const double difference = static_cast<double>(n) - mean;
    squares += difference * difference;
  }
  return std::sqrt(squares / static_cast<double>(loads.size())) / mean;
}

double max_over_mean(const std::vector<int64_t>& loads) {
  const double sum = sum_of(loads);
  if (sum == 0) return 1;
  const auto most = static_cast<double>(*std::max_element(loads.begin(), loads.end()));
  return most * static_cast<double>(loads.size()) / sum;
}

RoutingMetrics routing_metrics(const std::vector<int64_t>& counts, int64_t kept,
                               const std::vector<int64_t>& rank_loads) {
  RoutingMetrics metrics;
  const double sum = sum_of(counts);
  if (sum == 0) return metrics;
  const double mean = sum / static_cast<double>(counts.size());
  metrics.load_cv = coefficient_of_variation(counts);
  metrics.imbalance_experts = max_over_mean(counts);
  metrics.imbalance_ranks = max_over_mean(rank_loads);
  double entropy = 0, dead = 0;
  for (int64_t n : counts) {
    const double share = static_cast<double>(n) / sum;
    if (n > 0) entropy -= share * std::log(share);
    if (static_cast<double>(n) < 0.01 * mean) ++dead;
  }
  if (counts.size() > 1) metrics.entropy = entropy / std::log(static_cast<double>(counts.size()));
  metrics.dead_share = dead / static_cast<double>(counts.size());
  metrics.dropped_share = (sum - static_cast<double>(kept)) / sum;
  return metrics;
}

}  // namespace moetwin
