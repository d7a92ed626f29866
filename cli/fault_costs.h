#pragma once
// What the faults of a modelled machine cost: the same run without them, and without each.

#include <optional>

#include "core/record/report.h"
#include "core/scenario/scenario.h"

namespace moetwin {

/// Runs the scenario, which has numerics none, without the faults of its machine and without each
/// of them, in processes of their own; FaultCosts::each has the seconds of those runs. Call it
/// before this process has threads. nullopt: the machine has no faults. Of more than `most` faults
/// only all together are looked at.
std::optional<FaultCosts> without_faults(const Scenario& scenario, size_t most = 8);
/// The costs for a run that took `device_seconds` with the faults.
FaultCosts against(FaultCosts without, double device_seconds);

}  // namespace moetwin
