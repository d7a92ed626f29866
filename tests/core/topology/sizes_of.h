#pragma once
// Short way to write the sizes of a grid in a test.

#include "core/scenario/scenario.h"

namespace moetwin {

struct Sizes {
  int64_t world = 1, dp = 1, ep = 1, tp = 1, pp = 1, etp = 0;
};

inline DistributedConfig sizes_of(const Sizes& sizes) {
  DistributedConfig config;
  config.world_size = sizes.world;
  config.data_parallel_size = sizes.dp;
  config.expert_parallel_size = sizes.ep;
  config.tensor_parallel_size = sizes.tp;
  config.pipeline_parallel_size = sizes.pp;
  config.expert_tensor_parallel_size = sizes.etp;
  return config;
}

}  // namespace moetwin
