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
  /// Device memory beside a bare context's: modules loaded, workspaces of libraries.
  int64_t memory_bytes = 0;
};

FrameworkCosts framework_costs(KernelClass kernel_class);

}  // namespace moetwin
