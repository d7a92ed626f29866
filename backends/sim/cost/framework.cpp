#include "backends/sim/cost/framework.h"

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
      c.memory_bytes = 500 * kMiB;  // PyTorch before lazy loading: all its kernels
      break;
    case KernelClass::megatron_core:
    case KernelClass::torch_fsdp:
      // Assumed: 5 us to launch and 10 for dispatch and autograd; published rows are bound by the
      // GPU.
      c.kernel_seconds = c.backward_kernel_seconds = c.collective_seconds = Seconds(15e-6);
      c.memory_bytes = 40 * kMiB;  // cuBLAS and cuBLASLt workspaces: 32 and 8 MiB on Hopper
      break;
  }
  return c;
}

}  // namespace moetwin
