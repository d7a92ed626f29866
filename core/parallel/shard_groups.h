#pragma once
// Over which ranks of a data parallel group parameters are shared, and which ranks keep equal
// copies.

#include "core/topology/grid.h"

namespace moetwin {

struct ShardGroups {
  Group shard;   ///< shares: gradients are reduce-scattered, parameters gathered
  Group copies;  ///< ranks with equal shares: gradients are all-reduced
};

/// Of `rank`'s group. `gpus_per_node` > 0: shares over the members on one node (HYBRID_SHARD); 0:
/// over the whole group. Throws Error(configuration) where nodes have unequally many members.
ShardGroups shard_groups(const Group& group, int64_t rank, int64_t gpus_per_node);

}  // namespace moetwin
