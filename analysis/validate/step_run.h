#pragma once
// One training step of a scenario on the modelled machine.

#include <string>

#include "analysis/validate/batch.h"
#include "core/record/report.h"

namespace moetwin {

/// Runs the scenario's steps; nothing is written.
Report run_steps(const Scenario& scenario, const MakeCluster& make);

/// "compute 81%, bubble 12%, other_communication 6%": parts of the median step of at least 1%.
std::string parts_text(const Report& report);

}  // namespace moetwin
