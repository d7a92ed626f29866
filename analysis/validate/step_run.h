#pragma once
// One training step of a scenario on the modelled machine.

#include <functional>
#include <string>

#include "analysis/validate/batch.h"
#include "core/record/report.h"

namespace moetwin {

/// Runs the scenario's steps in this process; nothing is written.
Report run_steps(const Scenario& scenario, const MakeCluster& make);

/// Micro-batches from which on a step's time grows by the same amount for each: 1F1B and gradient
/// accumulation are periodic once the pipeline is full: as many as stages, at least two.
int64_t steady_micro_batches(const Scenario& scenario);

/// What is asked of a run.
using Figure = std::function<Prediction(const Report&)>;

/// A figure of a step that is a straight line in the layers of a stage, from two on (four where
/// layers are gathered before use), and where it grows with them in micro-batches, from
/// `steady_micro_batches` on. Where there are more, the step is run with few, each run in a child
/// of its own, and the figure follows from the differences; the note is of the largest run.
Prediction estimate(const Scenario& scenario, const MakeCluster& make, const Figure& figure,
                    bool grows_with_micro_batches);

/// Seconds of a step, and what they are made of.
Prediction step_seconds(const Scenario& scenario, const MakeCluster& make);

/// The scenario with at most so many micro-batches.
Scenario with_micro_batches(Scenario scenario, int64_t count);

/// "compute 81%, bubble 12%, other_communication 6%": parts of the median step of at least 1%.
std::string parts_text(const Report& report);

}  // namespace moetwin
