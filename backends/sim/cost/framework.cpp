#include "backends/sim/cost/framework.h"

#include <cstring>

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
      c.kernel_seconds = c.collective_seconds = Seconds(105e-6);
      c.backward_kernel_seconds = Seconds(40e-6);
      // DT-VTRAIN-SINGLE, all rows: with 2 and with 4 stages alike a micro-batch of small models
      // takes 4.7 ms more than its layers do without stages.
      c.stage_pass_seconds = Seconds(2.35e-3);
      c.memory_bytes = 500 * kMiB;  // PyTorch before lazy loading: all its kernels
      break;
    case KernelClass::megatron_core:
    case KernelClass::torch_fsdp:
      // Assumed: 5 us to launch and 10 for dispatch and autograd; published rows are bound by the
      // GPU.
      c.kernel_seconds = c.backward_kernel_seconds = c.collective_seconds = Seconds(15e-6);
      // --tp-comm-overlap, as the published runs of Megatron-Core, NeMo and Megatron-Bridge have
      // it: Transformer Engine cuts into four.
      if (kernel_class == KernelClass::megatron_core) c.tensor_parallel_pieces = 4;
      // Fitted to MT-BRIDGE rows of one sequence a micro-batch without CUDA graphs (H100-016,
      // B200-006): their layers take 9 to 17 ms on GPUs of which one is three times the other.
      if (kernel_class == KernelClass::megatron_core)
        c.routing_seconds = Seconds(2.5e-3), c.backward_routing_seconds = Seconds(3.5e-3);
      c.memory_bytes = 40 * kMiB;  // cuBLAS and cuBLASLt workspaces: 32 and 8 MiB on Hopper
      break;
  }
  return c;
}

Seconds routing_host_time(const FrameworkCosts& costs, const char* op) {
  if (std::strcmp(op, "dispatch_plan") == 0) return costs.routing_seconds;
  if (std::strcmp(op, "combine_backward") == 0) return costs.backward_routing_seconds;
  return Seconds(0);
}

}  // namespace moetwin
