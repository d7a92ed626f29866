#pragma once
// The double binary trees that trees and NVLS send over.

#include <functional>
#include <vector>

#include "backends/sim/collective/plan.h"

namespace moetwin {

/// As many pairs of trees as the node with fewest members has members, each with its own NIC.
int64_t tree_channels(const NodesOfGroup& on);
/// Bytes that go up and down one tree.
double bytes_of_tree(const CollectiveShape& shape);
std::vector<std::vector<int64_t>> members_by_node(const NodesOfGroup& on);
/// Parent of each member as group ranks in one of the two trees over the members that channel
/// `channel` has on each node; -1: the root, and members that are not in it.
std::vector<int64_t> parents_between(const NodesOfGroup& on,
                                     const std::vector<std::vector<int64_t>>& members,
                                     int64_t channel, int tree);
/// Both trees of every channel: parents between nodes, and inside each node a chain that starts at
/// the channel's member.
void each_tree(const NodesOfGroup& on,
               const std::function<void(const std::vector<int64_t>& parents)>& each);

}  // namespace moetwin
