#pragma once
// The one table of sharding strategies: what each rank of a data parallel group keeps a share of
// only. ZeRO's stages, PyTorch's FSDP strategies and the distributed optimizer are its rows.

#include <string>
#include <vector>

#include "core/scenario/scenario.h"

namespace moetwin {

/// Each level includes the one before.
enum class Shard : uint8_t {
  nothing,
  optimizer,   ///< optimizer state; the update is followed by a gather of parameters
  everything,  ///< gradients and parameters too; parameters are gathered for use
};

struct Sharding {
  const char* name;  ///< fsdp.sharding_strategy
  int zero_stage;    ///< the stage that means it; -1: none
  Shard shard;
  bool reshard_after_forward;  ///< else gathered parameters stay until their backward is done
  bool inside_node;            ///< shares over the ranks of one node, copies across nodes
};

const std::vector<Sharding>& sharding_strategies();
/// Their names, and "auto" for what zero_stage says.
std::vector<std::string> sharding_names();
/// By fsdp.sharding_strategy, or else by zero_stage.
const Sharding& sharding_of(const DistributedConfig& config);
/// Whether gathers of parameters after a step go on beside the next one's first forward, as where
/// Megatron-Core is modelled (--overlap-param-gather, which its published runs have).
bool gathers_beside_forward(const Scenario& scenario);

}  // namespace moetwin
