#include "analysis/rebalancing/cures.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/scenario/rules.h"

namespace moetwin {

std::vector<Cure> possible_cures(const Scenario& scenario) {
  std::vector<Cure> cures;
  const auto add = [&](const char* kind, int64_t redundant) {
    Scenario cured = scenario;
    cured.rebalancing.kind = kind;
    cured.rebalancing.redundant_experts = redundant;
    Problems problems("cure");
    check_rules(cured, &problems);
    if (problems.failed("rebalancing") || problems.failed("rebalancing.kind")) return;
    Cure cure;
    cure.rebalancing = cured.rebalancing;
    cure.name = redundant > 0 ? fmt::format("{}, {} redundant experts", kind, redundant) : kind;
    cures.push_back(std::move(cure));
  };
  const int64_t ranks = scenario.distributed_config.expert_parallel_size;
  if (scenario.model_config.num_moe_layers() == 0 || ranks < 2) return cures;
  add("placement", 0);
  add("replication", ranks);
  add("replication", 2 * ranks);
  add("shadowing", 0);
  add("spill", 0);
  return cures;
}

std::vector<Cure> predict_cures(const std::vector<Scenario>& steps, double measured_step_seconds,
                                const EstimateStep& estimate) {
  /// Mean over the steps; the fullest rank of any.
  const auto figures_of = [&](const RebalancingConfig& rebalancing) {
    PlanFigures mean;
    for (Scenario step : steps) {
      step.rebalancing = rebalancing;
      const PlanFigures figures = estimate(step);
      mean.step_seconds += figures.step_seconds / static_cast<double>(steps.size());
      mean.peak_bytes = std::max(mean.peak_bytes, figures.peak_bytes);
    }
    return mean;
  };
  RebalancingConfig none = steps.front().rebalancing;
  none.kind = "none";
  const PlanFigures without = figures_of(none);
  const double measured = measured_step_seconds > 0 ? measured_step_seconds : without.step_seconds;
  std::vector<Cure> cures = possible_cures(steps.front());
  for (Cure& cure : cures) {
    const PlanFigures with = figures_of(cure.rebalancing);
    cure.step_seconds = measured * with.step_seconds / without.step_seconds;
    cure.gain = 1 - with.step_seconds / without.step_seconds;
    cure.more_bytes = with.peak_bytes - without.peak_bytes;
  }
  std::stable_sort(cures.begin(), cures.end(),
                   [](const Cure& a, const Cure& b) { return a.gain > b.gain; });
  return cures;
}

Scenario with_recorded_routing(Scenario scenario, const std::string& directory, int64_t step) {
  scenario.training_config.numerics = "none";
  scenario.routing.source = "trace";
  scenario.routing.trace_file =
      std::filesystem::absolute(std::filesystem::path(directory) / "routing.csv").string();
  scenario.routing.first_step = step;
  scenario.memory.on_exceed = "report";
  return scenario;
}

}  // namespace moetwin
