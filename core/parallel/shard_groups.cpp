#include "core/parallel/shard_groups.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace moetwin {

ShardGroups shard_groups(const Group& group, int64_t rank, int64_t gpus_per_node) {
  const Group alone{rank, 1, 0, 1, 1};
  if (gpus_per_node == 0) return {group, alone};
  const int64_t n = group.size(), index = group.index_of(rank);
  int64_t on_node = 1;
  while (on_node < n && group.member(on_node) / gpus_per_node == group.base / gpus_per_node)
    ++on_node;
  bool even = n % on_node == 0;
  for (int64_t i = 0; even && i < n; ++i) {
    const int64_t first = i / on_node * on_node;
    even = group.member(i) / gpus_per_node == group.member(first) / gpus_per_node &&
           (first == 0 ||
            group.member(first) / gpus_per_node != group.member(first - 1) / gpus_per_node);
  }
  // A run of on_node members, and every on_node-th member, must be strides again.
  even = even && (group.n1 % on_node == 0 || on_node % group.n1 == 0);
  if (!even)
    throw Error(ErrorClass::configuration,
                fmt::format("distributed_config.fsdp.sharding_strategy: hybrid sharding needs "
                            "equally many ranks of a data parallel group on every node, but the "
                            "group of rank {} (size {}, first rank {}) has {} on the first node of "
                            "{} GPUs; legal: sizes that fill nodes evenly, or FULL_SHARD",
                            rank, n, group.base, on_node, gpus_per_node));
  ShardGroups out;
  const int64_t begin = index / on_node * on_node, place = index % on_node;
  if (group.n1 % on_node == 0) {
    out.shard = {group.member(begin), 1, 0, on_node, group.stride1};
    out.copies = {group.member(place), group.n0, group.stride0, group.n1 / on_node,
                  group.stride1 * on_node};
  } else {
    const int64_t outer = on_node / group.n1;
    out.shard = {group.member(begin), outer, group.stride0, group.n1, group.stride1};
    out.copies = {group.member(place), 1, 0, group.n0 / outer, group.stride0 * outer};
  }
  return out;
}

}  // namespace moetwin
