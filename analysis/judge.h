#pragma once
// The verdicts that a run writes about itself.

#include <string>

#include "core/record/report.h"
#include "core/scenario/scenario.h"
#include "core/topology/grid.h"

namespace moetwin {

/// Adds to the report what steps.csv, routing.csv, probe.csv and timeline.json in `directory` say:
/// verdicts on routing and loss, the worst first, notes, and the router's share of the computing.
/// report.json need not be there yet.
void judge_run(const std::string& directory, const Scenario& scenario, const Grid& grid,
               Report& report);

}  // namespace moetwin
