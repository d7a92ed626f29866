#pragma once
// What a framework costs beside its kernels: host time and device memory.

#include <cstdint>

#include "core/base/units.h"
#include "core/device/kernel_class.h"
#include "core/device/op.h"
#include "core/scenario/scenario.h"

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
  /// Of each local expert in a grouped product, where the library launches one after the other:
  /// descriptors, look-up of an algorithm, casts, launch.
  Seconds expert_product_seconds;
  /// Whether the host waits for the GPU before each forward and backward of a micro-batch, so that
  /// it never runs ahead from one into the next.
  bool passes_wait = false;
  /// Whether a tensor-parallel rank sends a stage its part of a hidden state that all of them have,
  /// and the receivers gather it inside their node. Known to estimates alone.
  bool scatters_hidden = false;
  /// Device memory beside a bare context's: modules loaded, workspaces of libraries.
  int64_t memory_bytes = 0;
};

FrameworkCosts framework_costs(KernelClass kernel_class);

/// What of tensor-parallel communication goes on beside products.
struct TensorParallelBeside {
  /// Pieces that sequence-parallel gathers and reductions are cut into, so that all but one go on
  /// beside the product that reads or makes them (--tp-comm-overlap); 1: whole.
  int64_t pieces = 1;
  /// Whether the backward's all-reduces go on beside the gradients of weights (Megatron-LM since
  /// 2022: LinearWithGradAccumulationAndAsyncCommunication).
  bool sums = false;
};
TensorParallelBeside tensor_parallel_beside(const Scenario& scenario);

/// Whether gathered parameters are copied out of the buffer that they arrive in, before compute
/// goes on: FSDP2's all_gather_copy_out (torch/distributed/fsdp, _fsdp_collectives.py).
bool gathered_are_copied(const Scenario& scenario);
/// That copy of `bytes`.
KernelWork copy_of_gathered(int64_t bytes, DType dtype);

/// Of them, what an op has beside its kernels' launches: the routing's with the ops that each MoE
/// layer has once each way, the experts' with grouped products.
Seconds host_time_beside(const FrameworkCosts& costs, const OpCall& call);

}  // namespace moetwin
