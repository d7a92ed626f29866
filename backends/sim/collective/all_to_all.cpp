#include <algorithm>

#include "backends/sim/collective/plan.h"
#include "backends/sim/collective/port_sums.h"

namespace moetwin {

Plan all_to_all_plan(const CollectiveShape& shape, const Machine& machine) {
  const int64_t n = shape.group.size();
  Plan plan;
  PortSums ports;
  std::vector<int64_t> route;
  const GpuProfile& gpu = machine.profile().gpu;
  const BytesPerSecond memory(gpu.memory_bandwidth.value *
                              gpu.bandwidth_efficiency[static_cast<size_t>(KernelKind::copy)]);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t from = shape.group.member(i);
    double sent = 0, off_node = 0;
    for (int64_t j = 0; j < n; ++j) {
      const double bytes = shape.pair_bytes[static_cast<size_t>(i * n + j)];
      if (bytes <= 0) continue;
      if (i == j) {  // read and written in the GPU's own memory
        plan.local = std::max(plan.local, Bytes(2 * bytes) / memory);
        continue;
      }
      const int64_t to = shape.group.member(j);
      sent += bytes;
      if (!machine.same_node(from, to)) off_node += bytes;
      plan.latency = std::max(plan.latency, machine.latency(from, to));
      machine.route(from, to, route);
      for (int64_t port : route) ports.add(port, bytes);
    }
    plan.sent.push_back(sent);
    plan.sent_off_node.push_back(off_node);
  }
  plan.ports = ports.take();
  return plan;
}

Plan send_plan(const CollectiveShape& shape, const Machine& machine) {
  const int64_t from = shape.group.member(shape.from), to = shape.group.member(shape.to);
  Plan plan;
  std::vector<int64_t> route;
  machine.route(from, to, route);
  for (int64_t port : route) plan.ports.push_back({port, shape.bytes});
  plan.latency = machine.latency(from, to);
  plan.sent.resize(static_cast<size_t>(shape.group.size()));
  plan.sent_off_node = plan.sent;
  plan.sent[static_cast<size_t>(shape.from)] = shape.bytes;
  if (!machine.same_node(from, to))
    plan.sent_off_node[static_cast<size_t>(shape.from)] = shape.bytes;
  return plan;
}

}  // namespace moetwin
