#include <algorithm>

#include "backends/sim/collective/flow_run.h"
#include "backends/sim/collective/member_ports.h"
#include "backends/sim/collective/plan.h"

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

/// What every member sends to its successor, and so what every link of a ring carries.
double passed_by(const CollectiveShape& shape) {
  const auto n = static_cast<double>(shape.group.size());
  return rounds_of(shape.kind) * (n - 1) / n * shape.bytes;
}

MemberPorts ring_ports(const CollectiveShape& shape, const Machine& machine) {
  const NodesOfGroup& on = *shape.on;
  const int64_t rings = rings_of(on);
  const double passed = passed_by(shape);
  MemberPorts ports(shape, machine);
  for (size_t i = 0; i < on.node_index.size(); ++i) {
    const int64_t here = on.members_on[static_cast<size_t>(on.node_index[i])];
    // In the rings that neither leave nor enter here a member passes on inside its node.
    const int64_t before = (on.index_on_node[i] + here - 1) % here;
    const double share = on.nodes > 1 ? passed / static_cast<double>(rings) : 0;
    ports.nic_up[i] = on.index_on_node[i] < rings ? share : 0;
    ports.nic_down[i] = before < rings ? share : 0;
    ports.nvlink_up[i] = passed - ports.nic_up[i];
    ports.nvlink_down[i] = passed - ports.nic_down[i];
    // One GPU on its node has no link inside: nothing of rounding is left.
    if (here == 1) ports.nvlink_up[i] = ports.nvlink_down[i] = 0;
  }
  for (int64_t ring = 0; machine.fabric_links() > 0 && on.nodes > 1 && ring < rings; ++ring) {
    const std::vector<int64_t> order = order_of(on, ring);
    for (size_t at = 0; at < order.size(); ++at) {
      const int64_t from = order[at], to = order[(at + 1) % order.size()];
      if (on.node_index[static_cast<size_t>(from)] != on.node_index[static_cast<size_t>(to)])
        ports.pass_fabric(from, to, passed / static_cast<double>(rings));
    }
  }
  return ports;
}

}  // namespace

Work ring_work(const CollectiveShape& shape, const Machine& machine) {
  const auto n = static_cast<double>(shape.group.size());
  const NodesOfGroup& on = *shape.on;
  const double rounds = rounds_of(shape.kind);
  Work work;
  work.ring = true;
  // A piece travels n-1 of the ring's n hops in each round; the slowest path leaves out one inside
  // a node.
  const double between = on.nodes > 1 ? std::min(static_cast<double>(on.nodes), n - 1) : 0;
  work.nic_steps = rounds * between;
  work.nvlink_steps = rounds * (n - 1 - between);
  work.piece = Bytes(shape.bytes / (static_cast<double>(rings_of(on)) * n));
  ring_ports(shape, machine).busiest(work);
  return work;
}

void plan_ring(const CollectiveShape& shape, const Machine& machine, Plan& plan) {
  const MemberPorts ports = ring_ports(shape, machine);
  ports.emit(plan);
  ports.count_sent(plan);
  // While a piece travels the other pieces pass the busiest port, so the whole takes as long as the
  // slower of the two.
  const Work work = ring_work(shape, machine);
  const ProtocolFigures& f = plan.figures;
  plan.latency = std::max(path_of(work, f, machine) - plan.alone(machine),
                          work.nic_steps > 0 ? f.nic_step : f.nvlink_step);
}

void flow_ring(const CollectiveShape& shape, const Machine& machine, const ProtocolFigures& figures,
               FlowRun& run) {
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
      const Hop hop(figures, machine, from, to);
      run.spawn([&run, steps, bytes, from, to, hop, in = arrived[p], out = arrived[next]] {
        for (int64_t step = 0; step < steps; ++step) {
          if (step > 0) in->wait();  // a step passes on what the one before brought
          run.send(from, to, hop.taken_up(bytes));
          out->post(run.now() + hop.latency);
        }
        in->wait();
      });
    }
  }
}

}  // namespace moetwin
