#pragma once
// A row of gemm.csv as launches.

#include <functional>
#include <string>
#include <vector>

#include "analysis/validate/published.h"
#include "core/device/allocator.h"
#include "core/device/op.h"

namespace moetwin {

struct KernelRow {
  std::string reason;   ///< why it cannot be expressed; empty: it can
  double seconds = 0;   ///< measured
  std::string kernels;  ///< whose kernels: cluster.kernels
  /// Launches that together are what was measured.
  std::function<std::vector<OpCall>(Allocator&)> calls;
};

/// Times from `time_ms`, else from `tflops` with the FLOP of the row: 2MNK of products, for
/// attention 4 S^2 D a head forward (half of it causal) and 2.5 times that backward
/// (FlashAttention's convention, whose rows these are). Throws UnreadableField.
KernelRow read_kernel_row(const PublishedRow& row);

}  // namespace moetwin
