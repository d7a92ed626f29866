#pragma once
// What the trainer cannot do yet, said before anything starts.

#include "core/scenario/scenario.h"

namespace moetwin {

/// Throws Error(configuration) that names every key whose value the trainer does not have yet.
void check_supported(const Scenario& scenario);

}  // namespace moetwin
