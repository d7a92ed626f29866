#include <bit>

#include "backends/sim/collective/plan.h"
#include "backends/sim/collective/port_sums.h"

namespace moetwin {

namespace {
double levels(int64_t n) { return n <= 1 ? 0 : std::bit_width(static_cast<uint64_t>(n - 1)); }

Seconds tree_latency(const NodesOfGroup& on, const Machine& machine) {
  return machine.profile().nic.latency * (2 * levels(on.nodes)) +
         machine.profile().nvlink.latency * (2 * static_cast<double>(on.most - 1));
}
}  // namespace

void plan_tree(const CollectiveShape& shape, const Machine& machine, Plan& plan) {
  const NodesOfGroup& on = *shape.on;
  plan.algorithm = Algorithm::tree;
  plan.latency = tree_latency(on, machine);
  const auto nodes = static_cast<double>(on.nodes);
  PortSums ports(plan.ports);
  for (int64_t i = 0; i < shape.group.size(); ++i) {
    const auto index = static_cast<size_t>(i);
    const int64_t rank = shape.group.member(i);
    const auto here = static_cast<double>(on.members_on[static_cast<size_t>(on.node_index[index])]);
    // Two trees carry half the bytes each; all but a root send them up once and get them down once.
    const double between = 2 * (nodes - 1) / nodes * shape.bytes / here;
    const double inside = 2 * (here - 1) / here * shape.bytes;
    plan.sent[index] = between + inside;
    plan.sent_off_node[index] = between;
    for (Direction d : {Direction::up, Direction::down}) {
      ports.add(machine.nvlink(rank, d), inside);
      ports.add(machine.nic(rank, d), between);
      if (machine.has_uplinks()) ports.add(machine.uplink(machine.node_of(rank), d), between);
    }
  }
  ports.finish();
}

void plan_barrier(const CollectiveShape& shape, const Machine& machine, Plan& plan) {
  plan.algorithm = Algorithm::tree;
  plan.latency = tree_latency(*shape.on, machine);
}

}  // namespace moetwin
