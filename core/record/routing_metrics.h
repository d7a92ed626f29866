#pragma once
// Routing metrics of one MoE layer and step (semantics 8).

#include <cstdint>
#include <vector>

namespace moetwin {

struct RoutingMetrics {
  double load_cv = 0;            ///< std(n) / mean(n), population standard deviation
  double imbalance_experts = 1;  ///< max(n) / mean(n); MaxVio is this minus 1
  double imbalance_ranks = 1;    ///< the same of the assignments that each rank's experts get
  double entropy = 1;            ///< H(n / sum n) / ln E; 1 for a single expert
  double dead_share = 0;         ///< share of experts with n_i < 1% of the mean
  double dropped_share = 0;      ///< of all assignments

  RoutingMetrics& operator+=(const RoutingMetrics& other);
  RoutingMetrics operator/(double divisor) const;
};

/// `counts` [E] and `kept` before and after dropping; `rank_loads`: assignments, before dropping,
/// to the experts of each rank that has some. With no assignment at all every metric has the value
/// of a balanced layer.
RoutingMetrics routing_metrics(const std::vector<int64_t>& counts, int64_t kept,
                               const std::vector<int64_t>& rank_loads);

/// std / mean (population) and max / mean of loads; 0 and 1 when all are zero or there are none.
double coefficient_of_variation(const std::vector<int64_t>& loads);
double max_over_mean(const std::vector<int64_t>& loads);

}  // namespace moetwin
