#pragma once
// Seconds for one kernel on a given GPU from its FLOP, bytes and shape.

#include "backends/sim/cluster/profile.h"
#include "core/base/units.h"
#include "core/device/op.h"
#include "core/device/profile.h"

namespace moetwin {

/// Dense peak of arithmetic in `dtype` for kernels of `kind`; integers count as fp32.
FlopPerSecond peak(const GpuProfile& gpu, KernelKind kind, DType dtype);

/// Roofline (Williams et al. 2009): max(FLOP / (peak * compute efficiency), bytes / (memory
/// bandwidth * bandwidth efficiency)) + the fixed time of a kernel. Matrix products of a profile
/// with `gpu.matmul_tiles` cost what tiled_cost() says. `clock`: of tensor cores, over that of a
/// single launch.
Seconds cost(const KernelWork& work, const GpuProfile& gpu, double clock = 1);

/// The clock in this phase: passes of a training follow each other without a pause.
inline double clock_in(Phase phase, const GpuProfile& gpu) {
  return phase == Phase::forward || phase == Phase::backward || phase == Phase::recompute
             ? gpu.sustained
             : 1;
}

/// A copy between host and device: latency + bytes / effective bandwidth.
Seconds copy_cost(Bytes bytes, const LinkProfile& pcie);

}  // namespace moetwin
