#include "backends/sim/collective/plan.h"
#include "backends/sim/collective/port_sums.h"

namespace moetwin {

void plan_broadcast(const CollectiveShape& shape, const Machine& machine, Plan& plan) {
  const int64_t n = shape.group.size();
  PortSums ports(plan.ports);
  std::vector<int64_t> route;
  for (int64_t step = 0; step + 1 < n; ++step) {
    const int64_t i = (shape.root + step) % n;
    const int64_t from = shape.group.member(i), to = shape.group.member((i + 1) % n);
    plan.latency += machine.latency(from, to);
    machine.route(from, to, route);
    for (int64_t port : route) ports.add(port, shape.bytes);
    plan.sent[static_cast<size_t>(i)] = shape.bytes;
    if (!machine.same_node(from, to)) plan.sent_off_node[static_cast<size_t>(i)] = shape.bytes;
  }
  ports.finish();
}

}  // namespace moetwin
