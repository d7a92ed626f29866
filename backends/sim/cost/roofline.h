#pragma once
// Seconds for one kernel on a given GPU from its FLOP, bytes and shape.

#include "backends/sim/cluster/profile.h"
#include "core/base/units.h"
#include "core/device/op.h"

namespace moetwin {

/// Dense peak of arithmetic in `dtype` for kernels of `kind`; integers count as fp32.
FlopPerSecond peak(const GpuProfile& gpu, KernelKind kind, DType dtype);

/// Roofline (Williams et al. 2009): max(FLOP / (peak * compute efficiency), bytes / (memory
/// bandwidth * bandwidth efficiency)) + the fixed time of a kernel. Matrix products of a profile
/// with `gpu.matmul_tiles` cost what tiled_cost() says.
Seconds cost(const KernelWork& work, const GpuProfile& gpu);

/// A copy between host and device: latency + bytes / effective bandwidth.
Seconds copy_cost(Bytes bytes, const LinkProfile& pcie);

}  // namespace moetwin
