#pragma once
// Estimates of a step, for verbs that ask for many.

#include "analysis/plan/search.h"
#include "backends/sim/cluster/profile.h"

namespace moetwin {

/// On the machine of this profile; keeps what it has recorded for the next scenario. Of a scenario
/// whose experts move or are copied by intervals, of the first step after one.
EstimateStep estimates(const ClusterProfile& profile);

}  // namespace moetwin
