#pragma once
// One training step of a scenario on the modelled machine.

#include <string>

#include "analysis/validate/batch.h"
#include "core/record/report.h"

namespace moetwin {

/// Runs the scenario's steps in this process; nothing is written.
Report run_steps(const Scenario& scenario, const MakeCluster& make);

/// Micro-batches from which on a step's time grows by the same amount for each: 1F1B and gradient
/// accumulation are periodic once the pipeline is full.
int64_t steady_micro_batches(const Scenario& scenario);

/// Seconds of a step, and what they are made of. A step of many micro-batches is the one of
/// `steady` of them and as many times what another pipeline's worth adds; each is run in a child
/// of its own.
Prediction step_seconds(const Scenario& scenario, const MakeCluster& make);

/// The scenario with at most so many micro-batches: memory does not depend on more.
Scenario with_micro_batches(Scenario scenario, int64_t count);

/// "compute 81%, bubble 12%, other_communication 6%": parts of the median step of at least 1%.
std::string parts_text(const Report& report);

}  // namespace moetwin
