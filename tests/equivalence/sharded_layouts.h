#pragma once
// Layouts with a sharding strategy and a kind of recompute for each, chosen so that every level of
// every other factor meets every strategy and every kind of recompute.

#include "tests/equivalence/layouts.h"

namespace moetwin::test {

struct ShardedLayout {
  Layout layout;
  std::string sharding;   ///< fsdp.sharding_strategy; empty: as the layout says
  std::string recompute;  ///< none | selective | full
  std::string name() const;
  Scenario scenario(int64_t steps) const;
  /// Of the modelled machine: 8; with hybrid sharding the most, up to 4, that leave equally many
  /// members of every data parallel group on each node.
  int64_t gpus_per_node() const;
};

/// One or more of each layout, in order. Deterministic.
std::vector<ShardedLayout> shard_cover(const std::vector<Layout>& cover);
/// One of each layout; strategies and recompute take turns.
std::vector<ShardedLayout> shard_in_turns(const std::vector<Layout>& layouts);

}  // namespace moetwin::test
