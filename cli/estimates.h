#pragma once
// Estimates of a step, for verbs that ask for many.

#include <cstdint>
#include <vector>

#include "analysis/plan/search.h"
#include "backends/sim/cluster/profile.h"

namespace moetwin {

/// On the machine of this profile; keeps what it has recorded for the next scenario. Of a scenario
/// whose experts move or are copied by intervals, of the first step after one; of one whose routing
/// changes from step to step, of the middle one of the first eight that a run measures, with the
/// memory of the fullest.
EstimateStep estimates(const ClusterProfile& profile);
/// The steps of a run that an estimate looks at, in a row: behind its warm-up, of which eight steps
/// count at most.
std::vector<int64_t> steps_looked_at(const Scenario& scenario);

}  // namespace moetwin
