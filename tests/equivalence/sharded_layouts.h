#pragma once
// Layouts with a sharding strategy and a kind of recompute for each, chosen so that every level of
// every other factor meets every strategy and every kind of recompute.

#include <set>
#include <string>
#include <vector>

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
/// `count` of a cover, in order: those that meet most pairs of a level with a strategy or a kind of
/// recompute, so that what matters of the cover is in. Deterministic.
std::vector<ShardedLayout> cross_section(const std::vector<ShardedLayout>& cover, size_t count);
/// The levels of all factors, sharding and recompute, that occur in a list.
std::set<std::string> levels_met(const std::vector<ShardedLayout>& layouts);
/// One of each layout; strategies and recompute take turns.
std::vector<ShardedLayout> shard_in_turns(const std::vector<Layout>& layouts);

}  // namespace moetwin::test
