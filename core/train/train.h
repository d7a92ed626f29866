#pragma once
// The program every rank runs, on either machine.

#include "core/train/trainer.h"

namespace moetwin {

/// Trains the scenario on this rank's device; with output.check_access under the access check.
void train_rank(Backend& device, const Scenario& scenario, const Grid& grid,
                const TrainerServices& services);

}  // namespace moetwin
