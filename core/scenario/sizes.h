#pragma once
// The sizes of every parallel axis: what the file says, what follows, and what cannot be
// (semantics 1). Nothing is clamped: a size that does not fit is a problem with its factors and
// legal values.

#include <cstdint>
#include <string>
#include <vector>

#include "core/scenario/scenario.h"

namespace moetwin {

/// One broken rule: the key of distributed_config (or model_config.moe_layer_config) it is about.
struct SizeProblem {
  std::string key;  ///< full path, e.g. "distributed_config.expert_parallel_size"
  std::string message;
};

/// All axes of both grids.
struct ParallelSizes {
  int64_t world = 1, ddp = 1, tp = 1, pp = 1, edp = 1, ep = 1, etp = 1;
  int64_t cp = 1;  ///< of the dense-DP ranks those that have parts of the same sequences
  /// Ranks with sequences of their own.
  int64_t batch_ranks() const { return ddp / cp; }
  int64_t expert_sharding = 1;  ///< esd = min(EP, E)
  int64_t hidden_sharding = 1;  ///< hsd = EP / esd
  int64_t local_experts = 0;    ///< E / esd; 0 without experts
};

/// Every broken rule at once; empty when the sizes make a grid. `num_experts` 0: no expert rules.
std::vector<SizeProblem> size_problems(const DistributedConfig& config, int64_t num_experts,
                                       int64_t expert_width);

/// The sizes of a configuration without problems.
ParallelSizes parallel_sizes(const DistributedConfig& config, int64_t num_experts);

/// Tokens of a sequence that a rank has: sequence_length / CP.
int64_t local_sequence_length(const Scenario& scenario);

/// The values of expert_parallel_size that fit this world, PP, ETP and these experts, ascending;
/// data_parallel_size follows from each.
std::vector<int64_t> legal_expert_parallel_sizes(const DistributedConfig& config,
                                                 int64_t num_experts, int64_t expert_width);

}  // namespace moetwin
