#pragma once
// What rebalancing would gain a training: by arithmetic, from the loads that it has without.

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/plan/search.h"
#include "core/scenario/scenario.h"

namespace moetwin {

/// One way to rebalance, and what it is predicted to do.
struct Cure {
  RebalancingConfig rebalancing;
  std::string name;         ///< "replication, 8 redundant experts"
  double step_seconds = 0;  ///< measured x estimate with / estimate without
  double gain = 0;          ///< share of the measured step that it saves; negative: it costs
  int64_t more_bytes = 0;   ///< of the fullest rank's memory; negative: less
};

/// The kinds of rebalancing whose rules hold for the scenario, each with the scenario's own
/// settings; replication with one replica and with two on each rank. Empty where experts are not
/// spread over ranks.
std::vector<Cure> possible_cures(const Scenario& scenario);

/// `steps`: the training without a cure, with numerics none and the routing that is to be predicted
/// for (a scripted load, a trace), once for each step to be looked at. `estimate` is asked for a
/// step after the first interval of replication. Where `measured_step_seconds` is 0 the estimate
/// without stands for it. The largest gain first.
std::vector<Cure> predict_cures(const std::vector<Scenario>& steps, double measured_step_seconds,
                                const EstimateStep& estimate);

/// The scenario whose routing is what the run in `directory` recorded, from step `step` on.
Scenario with_recorded_routing(Scenario scenario, const std::string& directory, int64_t step);

}  // namespace moetwin
