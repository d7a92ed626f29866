#pragma once
// Gathers of parameters after an optimizer step beside the forward of the next one's first
// micro-batch (Megatron-Core's --overlap-param-gather).

#include "backends/sim/cluster/profile.h"
#include "backends/sim/representative/compose.h"

namespace moetwin {

/// Seconds by which each step is shorter where they are: of the stage that gains least. The first
/// bucket stays in the way of the first layer, and what goes on beside products slows them.
double gained_beside_forward(const ComposeSetup& step, const GpuProfile& gpu);

}  // namespace moetwin
