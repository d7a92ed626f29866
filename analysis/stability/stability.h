#pragma once
// The stability of a run's routing: metrics per layer and verdicts.

#include <string>
#include <vector>

#include "analysis/result/routing_series.h"
#include "analysis/stability/finding.h"
#include "analysis/stability/load_metrics.h"
#include "analysis/stability/loss_series.h"
#include "analysis/stability/thresholds.h"

namespace moetwin {

struct StabilityReport {
  std::vector<LoadMetrics> layers;
  LossMetrics loss;
  /// The worst first. Never empty: one `stable` when nothing else holds and there was enough to
  /// judge, otherwise none and a note says why.
  std::vector<Finding> findings;
  std::vector<std::string> notes;  ///< what to know that is no verdict
  bool has(const std::string& kind) const;
};

StabilityReport analyse_stability(const RoutingSeries& routing, const LossSeries& loss,
                                  const StabilityOptions& options);

Json::Value stability_json(const StabilityReport& report);

}  // namespace moetwin
