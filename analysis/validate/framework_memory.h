#pragma once
// Bytes that frameworks keep for parameters, where they differ from the core's: 2 of a 16-bit
// weight, 4 of its gradient and 12 of its master and moments, the last divided by the shards.

#include "analysis/validate/published.h"
#include "analysis/validate/step_memory.h"
#include "core/scenario/scenario.h"

namespace moetwin {

/// What the row's framework has more (or less) on a rank of the stage.
double more_for_states(const PublishedRow& row, const Scenario& scenario, const StageMemory& stage);

}  // namespace moetwin
