#pragma once
// A run by estimates: what every rank would have told the record, step by step.

#include <functional>
#include <string>

#include "backends/sim/representative/estimate.h"
#include "core/device/backend.h"
#include "core/record/run_sink.h"
#include "core/topology/grid.h"

namespace moetwin {

/// Of rank 0, and one line about the model of the cluster: as Cluster has them.
DeviceProperties representative_device(const Scenario& scenario, const ClusterProfile& profile);
std::string representative_description(const Scenario& scenario, const ClusterProfile& profile);

/// Hands every step of the scenario's training to the record, for every rank: time, parts, memory
/// and traffic of its stage (of the rank that the others wait for), its own routing counts. Ends
/// after the step for which `stop_after` says so. Throws Error(capacity) where it does not fit and
/// memory.on_exceed is stop.
void record_estimates(const Scenario& scenario, const Grid& grid, Estimator& estimator,
                      RunSink& recorder, const std::function<bool(int64_t)>& stop_after);

}  // namespace moetwin
