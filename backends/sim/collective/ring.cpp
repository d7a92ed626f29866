#include <algorithm>

#include "backends/sim/collective/plan.h"
#include "backends/sim/collective/port_sums.h"

namespace moetwin {

void plan_ring(const CollectiveShape& shape, const Machine& machine, Plan& plan) {
  const int64_t n = shape.group.size();
  const NodesOfGroup& on = *shape.on;
  const double rounds = shape.kind == CollectiveKind::all_reduce ? 2 : 1;
  // What every member sends to its successor, and so what every link of a ring carries.
  const double passed = rounds * static_cast<double>(n - 1) / static_cast<double>(n) * shape.bytes;
  const auto rings = static_cast<double>(on.nodes > 1 ? on.fewest : 1);

  plan.algorithm = Algorithm::ring;
  // A piece travels n-1 of the ring's n hops, the slowest path leaves out one inside a node.
  const int64_t hops_between = on.nodes > 1 ? std::min(on.nodes, n - 1) : 0;
  plan.latency =
      machine.profile().nic.latency * (rounds * static_cast<double>(hops_between)) +
      machine.profile().nvlink.latency * (rounds * static_cast<double>(n - 1 - hops_between));

  PortSums ports(plan.ports);
  for (int64_t i = 0; i < n; ++i) {
    const auto index = static_cast<size_t>(i);
    const int64_t rank = shape.group.member(i);
    // Ring r leaves and enters a node at its member r; in the other rings that member passes on
    // inside the node.
    const double off_node =
        on.nodes > 1 && static_cast<double>(on.index_on_node[index]) < rings ? passed / rings : 0;
    const double inside = passed - off_node;
    plan.sent[index] = passed;
    plan.sent_off_node[index] = off_node;
    for (Direction d : {Direction::up, Direction::down}) {
      ports.add(machine.nvlink(rank, d), inside);
      ports.add(machine.nic(rank, d), off_node);
      if (machine.has_uplinks()) ports.add(machine.uplink(machine.node_of(rank), d), off_node);
    }
  }
  ports.finish();
}

}  // namespace moetwin
