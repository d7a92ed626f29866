#pragma once
// Steps whose experts' buffers are padded to a capacity.

#include "analysis/validate/batch.h"
#include "core/scenario/scenario.h"

namespace moetwin {

/// Seconds of a step in which every expert's buffer has the rows of `choices` times even routing by
/// one choice. Even routing by a whole number of choices has just these rows, so between whole
/// numbers the time is taken as a straight line.
Prediction padded_step_seconds(const Scenario& scenario, double choices, const MakeCluster& make);

}  // namespace moetwin
