#include "backends/sim/collective/flow_run.h"
#include "backends/sim/collective/member_ports.h"
#include "backends/sim/collective/plan.h"

namespace moetwin {
namespace {

Work steps_of_chain(const CollectiveShape& shape, MemberPorts& ports) {
  const int64_t n = shape.group.size();
  const NodesOfGroup& on = *shape.on;
  Work work;
  for (int64_t step = 0; step + 1 < n; ++step) {
    const int64_t from = (shape.root + step) % n, to = (from + 1) % n;
    const bool inside =
        on.node_index[static_cast<size_t>(from)] == on.node_index[static_cast<size_t>(to)];
    (inside ? work.nvlink_steps : work.nic_steps) += 1;
    ports.pass(from, to, shape.bytes);
  }
  return work;
}

}  // namespace

Work broadcast_work(const CollectiveShape& shape, const Machine& machine) {
  MemberPorts ports(shape, machine);
  Work work = steps_of_chain(shape, ports);
  ports.busiest(work);
  return work;
}

void plan_broadcast(const CollectiveShape& shape, const Machine& machine, Plan& plan) {
  MemberPorts ports(shape, machine);
  plan.latency = path_of(steps_of_chain(shape, ports), plan.figures, machine);
  ports.emit(plan);
  ports.count_sent(plan);
}

void flow_broadcast(const CollectiveShape& shape, const Machine& machine,
                    const ProtocolFigures& figures, FlowRun& run) {
  const int64_t n = shape.group.size();
  MemberPorts unused(shape, machine);
  const double way = path_of(steps_of_chain(shape, unused), figures, machine).value;
  Flows flows;
  for (int64_t step = 0; step + 1 < n; ++step) {
    const int64_t i = (shape.root + step) % n;
    const int64_t from = shape.group.member(i), to = shape.group.member((i + 1) % n);
    flows.push_back({from, to, Hop(figures, machine, from, to).taken_up(shape.bytes)});
  }
  run.spawn([&run, flows, way] {  // cut so fine that all hops carry at once
    run.sleep(way);
    run.send_all(flows);
  });
}

}  // namespace moetwin
