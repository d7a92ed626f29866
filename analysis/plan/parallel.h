#pragma once
// The search on all cores: each process takes some of the layouts.

#include "analysis/plan/search.h"

namespace moetwin {

/// Makes an estimator for one process.
using MakeEstimate = std::function<EstimateStep()>;

/// The same result as search_plan, whatever the number of processes; 0: as many as there are cores.
PlanSearch search_plan_in_processes(const Scenario& scenario, const PlanSpace& space,
                                    const PlanMachine& machine, const MakeEstimate& make,
                                    int processes = 0);

}  // namespace moetwin
