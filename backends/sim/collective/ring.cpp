#include <algorithm>

#include "backends/sim/collective/flow_run.h"
#include "backends/sim/collective/plan.h"
#include "backends/sim/collective/port_sums.h"

namespace moetwin {
namespace {

double rounds_of(CollectiveKind kind) { return kind == CollectiveKind::all_reduce ? 2 : 1; }

int64_t rings_of(const NodesOfGroup& on) { return on.nodes > 1 ? on.fewest : 1; }

// Group ranks in the order of ring r: node by node; a node is left at its member r, entered at the
// one after it.
std::vector<int64_t> order_of(const NodesOfGroup& on, int64_t ring) {
  const auto n = static_cast<int64_t>(on.node_index.size());
  std::vector<int64_t> first(static_cast<size_t>(on.nodes)), order(static_cast<size_t>(n));
  for (int64_t node = 1; node < on.nodes; ++node)
    first[static_cast<size_t>(node)] =
        first[static_cast<size_t>(node - 1)] + on.members_on[static_cast<size_t>(node - 1)];
  for (int64_t i = 0; i < n; ++i) {
    const auto index = static_cast<size_t>(i);
    const auto node = static_cast<size_t>(on.node_index[index]);
    const int64_t here = on.members_on[node];
    const int64_t place = (on.index_on_node[index] - ring - 1 + 2 * here) % here;
    order[static_cast<size_t>(first[node] + place)] = i;
  }
  return order;
}

}  // namespace

void plan_ring(const CollectiveShape& shape, const Machine& machine, Plan& plan) {
  const int64_t n = shape.group.size();
  const NodesOfGroup& on = *shape.on;
  const double rounds = rounds_of(shape.kind);
  // What every member sends to its successor, and so what every link of a ring carries.
  const double passed = rounds * static_cast<double>(n - 1) / static_cast<double>(n) * shape.bytes;
  const int64_t rings = rings_of(on);

  plan.algorithm = Algorithm::ring;
  PortSums ports(plan.ports);
  for (int64_t i = 0; i < n; ++i) {
    const auto index = static_cast<size_t>(i);
    const int64_t rank = shape.group.member(i);
    const int64_t here = on.members_on[static_cast<size_t>(on.node_index[index])];
    // In the rings that neither leave nor enter here a member passes on inside its node.
    const int64_t before = (on.index_on_node[index] + here - 1) % here;
    const double share = on.nodes > 1 ? passed / static_cast<double>(rings) : 0;
    const double leaves = on.index_on_node[index] < rings ? share : 0;
    const double enters = before < rings ? share : 0;
    plan.sent[index] = passed;
    plan.sent_off_node[index] = leaves;
    const auto add = [&](Direction d, double off_node) {
      ports.add(machine.nvlink(rank, d), passed - off_node);
      ports.add(machine.nic(rank, d), off_node);
      if (machine.has_uplinks()) ports.add(machine.uplink(machine.node_of(rank), d), off_node);
    };
    add(Direction::up, leaves);
    add(Direction::down, enters);
  }
  ports.finish();

  // A piece travels n-1 of the ring's n hops in each round; the slowest path leaves out one inside
  // a node. While it travels the other pieces pass the busiest port, so the whole takes as long as
  // the slower of the two.
  const int64_t between = on.nodes > 1 ? std::min(on.nodes, n - 1) : 0;
  const Bytes piece(shape.bytes / static_cast<double>(rings * n));
  const auto hop = [&](const LinkProfile& link) { return link.latency + piece / link.effective(); };
  const LinkProfile &nic = machine.profile().nic, &nvlink = machine.profile().nvlink;
  const Seconds path = hop(nic) * (rounds * static_cast<double>(between)) +
                       hop(nvlink) * (rounds * static_cast<double>(n - 1 - between));
  plan.latency = std::max(path - plan.alone(machine), between ? nic.latency : nvlink.latency);
}

void flow_ring(const CollectiveShape& shape, const Machine& machine, FlowRun& run) {
  const auto n = static_cast<size_t>(shape.group.size());
  const int64_t rings = rings_of(*shape.on);
  const auto steps = static_cast<int64_t>(rounds_of(shape.kind)) * (shape.group.size() - 1);
  const double bytes = shape.bytes / static_cast<double>(rings) / static_cast<double>(n);
  for (int64_t ring = 0; ring < rings; ++ring) {
    const std::vector<int64_t> order = order_of(*shape.on, ring);
    std::vector<std::shared_ptr<FlowSignal>> arrived(n);
    for (auto& a : arrived) a = run.signal();
    for (size_t p = 0; p < n; ++p) {
      const size_t next = (p + 1) % n;
      const int64_t from = shape.group.member(order[p]), to = shape.group.member(order[next]);
      const double latency = machine.latency(from, to).value;
      run.spawn([&run, steps, bytes, from, to, latency, in = arrived[p], out = arrived[next]] {
        for (int64_t step = 0; step < steps; ++step) {
          if (step > 0) in->wait();  // a step passes on what the one before brought
          run.send(from, to, bytes);
          out->post(run.now() + latency);
        }
        in->wait();
      });
    }
  }
}

}  // namespace moetwin
