#include "backends/sim/collective/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <unordered_map>

#include "backends/sim/collective/flow_run.h"
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

Algorithm allowed_by_nccl(const std::string& value) {
  std::string list = value;
  std::transform(list.begin(), list.end(), list.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool excludes = list.rfind('^', 0) == 0;
  if (excludes) list.erase(0, 1);
  std::istringstream parts(list);
  bool ring = excludes, tree = excludes;
  for (std::string part; std::getline(parts, part, ',');) {
    if (part == "ring") ring = !excludes;
    if (part == "tree") tree = !excludes;
  }
  if (ring == tree) return Algorithm::automatic;
  return ring ? Algorithm::ring : Algorithm::tree;
}

Seconds Plan::alone(const Machine& machine) const {
  Seconds longest = local;
  for (const PortBytes& p : ports)
    longest = std::max(longest, Bytes(p.bytes) / machine.bandwidth(p.port));
  return latency + longest;
}

void Plan::clear(int64_t members) {
  latency = local = Seconds(0);
  ports.clear();
  sent.assign(static_cast<size_t>(members), 0);
  sent_off_node.assign(static_cast<size_t>(members), 0);
}

void make_plan(const CollectiveShape& shape, const Machine& machine, Algorithm algorithm,
               Plan& plan) {
  const int64_t n = shape.group.size();
  plan.clear(n);
  const auto moves = [](double bytes) { return bytes > 0; };
  switch (shape.kind) {
    case CollectiveKind::barrier:
      if (n > 1) plan_barrier(shape, machine, plan);
      break;
    case CollectiveKind::all_to_all_v:
      if (std::any_of(shape.pair_bytes.begin(), shape.pair_bytes.end(), moves))
        plan_all_to_all(shape, machine, plan);
      break;
    default:
      if (n == 1 || shape.bytes <= 0) break;
      if (shape.kind == CollectiveKind::broadcast) {
        plan_broadcast(shape, machine, plan);
      } else if (shape.kind == CollectiveKind::send) {
        plan_send(shape, machine, plan);
      } else if (shape.kind != CollectiveKind::all_reduce || algorithm == Algorithm::ring) {
        plan_ring(shape, machine, plan);
      } else if (algorithm == Algorithm::tree) {
        plan_tree(shape, machine, plan);
      } else {
        plan_ring(shape, machine, plan);
        if (shape.on->nodes > 1) {  // inside one node the tree is a chain, no faster than a ring
          Plan tree;
          tree.clear(n);
          plan_tree(shape, machine, tree);
          if (tree.alone(machine) < plan.alone(machine)) plan = std::move(tree);
        }
      }
  }
  if (!plan.empty()) plan.latency += machine.profile().collective_seconds;
}

int64_t most_flow_members(CollectiveKind kind) {
  return kind == CollectiveKind::all_to_all_v ? 64 : 256;
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
