#include "cli/estimates.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "backends/sim/representative/estimate.h"
#include "backends/sim/representative/loads.h"
#include "core/moe/rebalancing/policy.h"
#include "core/ops/isa.h"

namespace moetwin {

std::vector<int64_t> steps_looked_at(const Scenario& s) {
  constexpr int64_t kMost = 8;  // also before them: a longer warm-up need not be simulated
  int64_t first = by_interval(s.rebalancing) ? s.rebalancing.interval_steps + 1 : 1;
  if (!varies_by_step(scripted_source(s))) return {first};
  first = std::max(first, std::min(s.training_config.warmup_steps_excluded, kMost) + 1);
  const int64_t count = std::clamp<int64_t>(s.training_config.steps - first + 1, 1, kMost);
  std::vector<int64_t> steps(static_cast<size_t>(count));
  std::iota(steps.begin(), steps.end(), first);
  return steps;
}

EstimateStep estimates(const ClusterProfile& profile) {
  const auto estimator = std::make_shared<Estimator>(
      profile, [isa = best_isa()](const Op& op) { return reference_of(op, isa); });
  return [estimator](const Scenario& scenario) {
    std::vector<Estimate> steps;
    int64_t fullest = 0;
    for (const int64_t step : steps_looked_at(scenario)) {
      EstimateOptions options;
      options.step = step;
      steps.push_back(estimator->estimate(scenario, options));
      fullest = std::max(fullest, steps.back().device_bytes);
    }
    const auto middle = steps.begin() + static_cast<int64_t>(steps.size() / 2);
    std::nth_element(steps.begin(), middle, steps.end(), [](const Estimate& a, const Estimate& b) {
      return a.step_seconds < b.step_seconds;
    });
    const Estimate& e = *middle;
    PlanFigures figures;
    figures.step_seconds = e.step_seconds;
    figures.tokens_per_second = e.tokens_per_second;
    figures.mfu = e.mfu;
    figures.dropped_share = e.dropped_share;
    figures.peak_bytes = fullest;
    figures.lasting_bytes = e.lasting_bytes;
    figures.parts = e.parts;
    return figures;
  };
}

}  // namespace moetwin
