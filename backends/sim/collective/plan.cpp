#include "backends/sim/collective/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "core/base/error.h"

namespace moetwin {

Algorithm parse_algorithm(const std::string& name) {
  if (name == "auto") return Algorithm::automatic;
  if (name == "ring") return Algorithm::ring;
  if (name == "tree") return Algorithm::tree;
  throw Error(
      ErrorClass::configuration,
      fmt::format("cluster.collective_algorithm \"{}\" is not known; legal: auto, ring, tree",
                  name));
}

Seconds Plan::alone(const Machine& machine) const {
  Seconds longest = local;
  for (const PortBytes& p : ports)
    longest = std::max(longest, Bytes(p.bytes) / machine.bandwidth(p.port));
  return latency + longest;
}

Plan make_plan(const CollectiveShape& shape, const Machine& machine, Algorithm algorithm) {
  const auto n = static_cast<size_t>(shape.group.size());
  const bool pairs = shape.kind == CollectiveKind::all_to_all_v;
  const bool bytes = pairs ? std::any_of(shape.pair_bytes.begin(), shape.pair_bytes.end(),
                                         [](double b) { return b > 0; })
                           : shape.bytes > 0;
  Plan plan;
  if (shape.kind == CollectiveKind::barrier) {
    plan = barrier_plan(shape, machine);
  } else if (bytes && (n > 1 || pairs)) {
    switch (shape.kind) {
      case CollectiveKind::all_reduce:
        if (algorithm != Algorithm::tree) plan = ring_plan(shape, machine);
        if (algorithm != Algorithm::ring) {
          Plan tree = tree_plan(shape, machine);
          if (algorithm == Algorithm::tree || tree.alone(machine) < plan.alone(machine))
            plan = std::move(tree);
        }
        break;
      case CollectiveKind::all_gather:
      case CollectiveKind::reduce_scatter:
        plan = ring_plan(shape, machine);
        break;
      case CollectiveKind::all_to_all_v:
        plan = all_to_all_plan(shape, machine);
        break;
      case CollectiveKind::broadcast:
        plan = broadcast_plan(shape, machine);
        break;
      default:
        plan = send_plan(shape, machine);
    }
    plan.latency += machine.profile().collective_seconds;
  }
  plan.sent.resize(n);
  plan.sent_off_node.resize(n);
  return plan;
}

NodesOfGroup::NodesOfGroup(const Group& group, const Machine& machine) {
  std::unordered_map<int64_t, int64_t> index;
  for (int64_t i = 0; i < group.size(); ++i) {
    const auto [it, added] = index.emplace(machine.node_of(group.member(i)), nodes);
    if (added) {
      ++nodes;
      members_on.push_back(0);
    }
    node_index.push_back(it->second);
    index_on_node.push_back(members_on[static_cast<size_t>(it->second)]++);
  }
  fewest = *std::min_element(members_on.begin(), members_on.end());
  most = *std::max_element(members_on.begin(), members_on.end());
}

}  // namespace moetwin
