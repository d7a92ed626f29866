#include <algorithm>

#include "backends/sim/collective/plan.h"
#include "backends/sim/collective/port_sums.h"

namespace moetwin {

void plan_all_to_all(const CollectiveShape& shape, const Machine& machine, Plan& plan) {
  const auto n = static_cast<size_t>(shape.group.size());
  const NodesOfGroup& on = *shape.on;
  const GpuProfile& gpu = machine.profile().gpu;
  const BytesPerSecond memory(gpu.memory_bandwidth.value *
                              gpu.bandwidth_efficiency[static_cast<size_t>(KernelKind::copy)]);
  std::vector<double> received(n), received_off_node(n);
  bool inside = false, between = false;
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) {
      const double bytes = shape.pair_bytes[i * n + j];
      if (bytes <= 0) continue;
      if (i == j) {  // read and written in the GPU's own memory
        plan.local = std::max(plan.local, Bytes(2 * bytes) / memory);
        continue;
      }
      plan.sent[i] += bytes;
      received[j] += bytes;
      if (on.node_index[i] == on.node_index[j]) {
        inside = true;
      } else {
        between = true;
        plan.sent_off_node[i] += bytes;
        received_off_node[j] += bytes;
      }
    }
  plan.latency = between  ? machine.profile().nic.latency
                 : inside ? machine.profile().nvlink.latency
                          : Seconds(0);
  PortSums ports(plan.ports);
  for (size_t i = 0; i < n; ++i) {
    const int64_t rank = shape.group.member(static_cast<int64_t>(i));
    const auto add = [&](Direction d, double all, double off_node) {
      ports.add(machine.nvlink(rank, d), all - off_node);
      ports.add(machine.nic(rank, d), off_node);
      if (machine.has_uplinks()) ports.add(machine.uplink(machine.node_of(rank), d), off_node);
    };
    add(Direction::up, plan.sent[i], plan.sent_off_node[i]);
    add(Direction::down, received[i], received_off_node[i]);
  }
  ports.finish();
}

void plan_send(const CollectiveShape& shape, const Machine& machine, Plan& plan) {
  const int64_t from = shape.group.member(shape.from), to = shape.group.member(shape.to);
  std::vector<int64_t> route;
  machine.route(from, to, route);
  PortSums ports(plan.ports);
  for (int64_t port : route) ports.add(port, shape.bytes);
  ports.finish();
  plan.latency = machine.latency(from, to);
  plan.sent[static_cast<size_t>(shape.from)] = shape.bytes;
  if (!machine.same_node(from, to))
    plan.sent_off_node[static_cast<size_t>(shape.from)] = shape.bytes;
}

}  // namespace moetwin
