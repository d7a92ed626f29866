#include "cli/estimates.h"

#include <memory>

#include "backends/sim/representative/estimate.h"
#include "core/moe/rebalancing/policy.h"
#include "core/ops/isa.h"

namespace moetwin {

EstimateStep estimates(const ClusterProfile& profile) {
  const auto estimator = std::make_shared<Estimator>(
      profile, [isa = best_isa()](const Op& op) { return reference_of(op, isa); });
  return [estimator](const Scenario& scenario) {
    EstimateOptions options;
    if (by_interval(scenario.rebalancing)) options.step = scenario.rebalancing.interval_steps + 1;
    const Estimate e = estimator->estimate(scenario, options);
    PlanFigures figures;
    figures.step_seconds = e.step_seconds;
    figures.tokens_per_second = e.tokens_per_second;
    figures.mfu = e.mfu;
    figures.dropped_share = e.dropped_share;
    figures.peak_bytes = e.device_bytes;
    figures.lasting_bytes = e.lasting_bytes;
    figures.parts = e.parts;
    return figures;
  };
}

}  // namespace moetwin
