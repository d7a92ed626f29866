#pragma once
// Whether a scenario can go on from a checkpoint, and what will not be as it was.

#include <string>
#include <vector>

#include "core/scenario/scenario.h"
#include "core/train/checkpoint/manifest.h"

namespace moetwin {

/// Throws Error(configuration) naming the key when the scenario cannot go on from there: too few
/// steps, no numbers, an optimizer whose state was not saved. Returns a line for every key of the
/// model, routing, data and seed that differs: allowed, but the training is another one then.
/// `data_sequences`: of the training split now.
std::vector<std::string> check_resume(const Scenario& scenario, const Manifest& manifest,
                                      int64_t data_sequences);

}  // namespace moetwin
