#include "backends/sim/collective/flow_run.h"
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
    if (step > 0)  // the chain fills up piece by piece
      plan.latency += Bytes(shape.bytes / kPieces) / (machine.same_node(from, to)
                                                          ? machine.profile().nvlink.effective()
                                                          : machine.profile().nic.effective());
    machine.route(from, to, route);
    for (int64_t port : route) ports.add(port, shape.bytes);
    plan.sent[static_cast<size_t>(i)] = shape.bytes;
    if (!machine.same_node(from, to)) plan.sent_off_node[static_cast<size_t>(i)] = shape.bytes;
  }
  ports.finish();
}

void flow_broadcast(const CollectiveShape& shape, const Machine& machine, FlowRun& run) {
  const int64_t n = shape.group.size();
  std::shared_ptr<FlowSignal> in;
  for (int64_t step = 0; step + 1 < n; ++step) {
    const int64_t i = (shape.root + step) % n;
    const int64_t from = shape.group.member(i), to = shape.group.member((i + 1) % n);
    const double latency = machine.latency(from, to).value, piece = shape.bytes / kPieces;
    const auto out = run.signal();
    run.spawn([&run, from, to, latency, piece, in, out, last = step + 2 == n] {
      for (int k = 0; k < kPieces; ++k) {
        if (in) in->wait();
        run.send(from, to, piece);
        out->post(run.now() + latency);
      }
      for (int k = 0; last && k < kPieces; ++k) out->wait();
    });
    in = out;
  }
}

}  // namespace moetwin
