#pragma once
// What a framework costs beside its kernels: host time and device memory.

#include <cstdint>

#include "core/base/units.h"
#include "core/device/kernel_class.h"

namespace moetwin {

struct FrameworkCosts {
  /// Host time of one kernel: in the forward the call in Python, dispatch, autograd's record and
  /// launch; in the backward autograd and launch. 0: the profile's launch_overhead_seconds.
  Seconds kernel_seconds, backward_kernel_seconds;
  /// Of one collective. 0: as above.
  Seconds collective_seconds;
  /// Of a MoE layer's routing, beside the kernels of the ops: sorts, masks, losses, statistics and
  /// their autograd, tens of small kernels each way.
  Seconds routing_seconds, backward_routing_seconds;
  /// Host time of a forward or backward of one micro-batch where there are stages, beside its
  /// kernels and sends: the engine's instructions.
  Seconds stage_pass_seconds;
  /// Device memory beside a bare context's: modules loaded, workspaces of libraries.
  int64_t memory_bytes = 0;
  /// Pieces that sequence-parallel gathers and reductions are cut into, so that all but one go on
  /// beside the product that reads or makes them; 1: whole. Known to estimates alone.
  int64_t tensor_parallel_pieces = 1;
};

FrameworkCosts framework_costs(KernelClass kernel_class);

/// Of them, the routing's host time with the op that each MoE layer has once each way; 0 with
/// others.
Seconds routing_host_time(const FrameworkCosts& costs, const char* op);

}  // namespace moetwin
