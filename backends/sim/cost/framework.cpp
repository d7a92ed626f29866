#include "backends/sim/cost/framework.h"

#include <cstring>

#include "core/scenario/sharding.h"

namespace moetwin {

namespace {
constexpr int64_t kMiB = 1 << 20;
}

FrameworkCosts framework_costs(KernelClass kernel_class) {
  FrameworkCosts c;
  switch (kernel_class) {
    case KernelClass::moetwin:
      break;
    case KernelClass::megatron_2021:
      // DT-VTRAIN-SINGLE, slopes over rows that differ in layers: however small its products, a
      // layer takes 3.0 to 3.5 ms of a micro-batch (1,024 to 2,048 wide, TP 1 to 4): the host's
      // time for its 19 + 29 kernels. Rows whose backward is bound by the GPU and whose forward is
      // not tell them apart: 3.3 ms (1,024 wide, micro-batch 2) and 3.5 ms (2,048 wide, 1) at TP 1.
      // Of 90 to 105 us and 30 to 43 us those with the least errors of all rows, with the host
      // waiting for tensor-parallel collectives (cluster.blocking_wait).
      c.kernel_seconds = Seconds(100e-6);
      c.backward_kernel_seconds = Seconds(40e-6);
      // Its timers around each forward and backward call torch.cuda.synchronize()
      // (megatron/global_vars.py, then timers.py), and so does its exchange between stages
      // (p2p_communication.py).
      c.passes_wait = true;
      c.collective_seconds = Seconds(15e-6);  // assumed, as in the others
      // Narayanan et al. 2021, 4.1: scatter/gather; DeepSpeed's pipe_partitioned.
      c.scatters_hidden = true;
      c.memory_bytes = 500 * kMiB;  // PyTorch before lazy loading: all its kernels
      break;
    case KernelClass::megatron_core:
    case KernelClass::torch_fsdp:
      // Assumed: 5 us to launch and 10 for dispatch and autograd; published rows are bound by the
      // GPU.
      c.kernel_seconds = c.backward_kernel_seconds = c.collective_seconds = Seconds(15e-6);
      // Transformer Engine's grouped linear goes over the experts (multi_stream_cublas_gemm): a
      // cuBLASLt call with its descriptors and look-up for each, casts before it. This and the
      // routing's were fitted to MT-BRIDGE-B200, steps of one sequence without CUDA graphs.
      if (kernel_class == KernelClass::megatron_core) {
        c.expert_product_seconds = Seconds(60e-6);
        c.routing_seconds = Seconds(0.75e-3), c.backward_routing_seconds = Seconds(1.05e-3);
      }
      c.memory_bytes = 40 * kMiB;  // cuBLAS and cuBLASLt workspaces: 32 and 8 MiB on Hopper
      break;
  }
  return c;
}

TensorParallelBeside tensor_parallel_beside(const Scenario& scenario) {
  // The published runs of Megatron-Core, NeMo and Megatron-Bridge have it; Transformer Engine cuts
  // into four.
  constexpr int64_t kPieces = 4;
  const std::string& kernels = scenario.cluster.kernels;
  return {kernels == "megatron-core" ? kPieces : 1, kernels == "megatron-2022"};
}

bool gathered_are_copied(const Scenario& scenario) {
  return sharding_of(scenario.distributed_config).shard == Shard::everything &&
         scenario.cluster.kernels.starts_with("torch-");
}

KernelWork copy_of_gathered(int64_t bytes, DType dtype) {
  KernelWork work;
  work.kind = KernelKind::copy;
  work.dtype = dtype;
  work.bytes = 2 * static_cast<double>(bytes);
  return work;
}

Seconds host_time_beside(const FrameworkCosts& costs, const OpCall& call) {
  const char* op = call.op->name;
  if (std::strcmp(op, "dispatch_plan") == 0) return costs.routing_seconds;
  if (std::strcmp(op, "combine_backward") == 0) return costs.backward_routing_seconds;
  if (std::strncmp(op, "grouped_gemm", 12) == 0 && call.sizes)
    return costs.expert_product_seconds * static_cast<double>(call.sizes->size());
  return Seconds(0);
}

}  // namespace moetwin
