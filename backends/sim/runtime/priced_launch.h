#pragma once
// What a launch costs on a GPU of the machine's kind, before what one GPU has of its own (slow
// ranks, corrections): alike on all ranks that launch the same.

#include <span>
#include <vector>

#include "backends/sim/cluster/profile.h"
#include "core/device/op.h"
#include "core/device/profile.h"

namespace moetwin {

struct PricedKernel {
  double seconds = 0;
  bool product = false;  ///< of a matrix product or attention
  bool gemm = false;     ///< of a plain matrix product
};

struct PricedLaunch {
  const char* name = "";
  int64_t bytes = 0;                      ///< of all kernels
  double flop = 0;                        ///< of all kernels
  double host_seconds = 0;                ///< beside the launches of the kernels
  std::span<const PricedKernel> kernels;  ///< owned by whoever keeps the launch
};

class LaunchPricer {
 public:
  LaunchPricer(const GpuProfile& gpu, const KernelChoice& kernels) : gpu_(gpu), choice_(kernels) {}
  /// Appends the kernels to `into`; the result's own span is left empty.
  PricedLaunch price(const OpCall& call, Phase phase, std::vector<PricedKernel>& into);

 private:
  const GpuProfile& gpu_;
  KernelChoice choice_;
  KernelList work_;
};

}  // namespace moetwin
