#pragma once
// Small host lists on the device without pinned memory, a copy or a lifetime to mind: they travel
// as kernel parameters.

#include <cstdint>
#include <vector>

#include "backends/cuda/device.cuh"
#include "backends/cuda/ops/table.h"

namespace moetwin::cuda_ops {

/// The words in scratch memory, valid for the kernels of this op.
int64_t* upload(CudaLaunchContext& context, const std::vector<int64_t>& words);

/// The group that item `at` belongs to, where begin[g] <= at < begin[g + 1]; begin has groups + 1
/// entries, ascending; empty groups are passed over.
__device__ inline int64_t find_group(const int64_t* begin, int64_t groups, int64_t at) {
  int64_t low = 0, high = groups - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (begin[middle + 1] <= at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

}  // namespace moetwin::cuda_ops
