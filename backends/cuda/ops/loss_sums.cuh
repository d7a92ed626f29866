#pragma once
// The sum over a micro-batch that both losses of tokens end with.

#include "backends/cuda/device.cuh"

namespace moetwin::cuda_ops {
namespace {

/// One block, in fixed order: adds {sum of losses, valid tokens} to sums [2]. A loss of exactly -1
/// stands for a token without a target.
__global__ void add_losses(const float* losses, int64_t tokens, float* sums) {
  double loss = 0, valid = 0;
  for (int64_t t = thread_id(); t < tokens; t += thread_count()) {
    const float mine = losses[t];
    if (mine == -1.0f) continue;
    loss += static_cast<double>(mine);
    valid += 1;
  }
  loss = block_sum(loss);
  valid = block_sum(valid);
  if (thread_id() == 0) {
    sums[0] += static_cast<float>(loss);
    sums[1] += static_cast<float>(valid);
  }
}

}  // namespace
}  // namespace moetwin::cuda_ops
