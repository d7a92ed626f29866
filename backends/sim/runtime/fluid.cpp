#include <algorithm>
#include <simgrid/s4u.hpp>

#include "backends/sim/runtime/network.h"
#include "backends/sim/runtime/port_sharing.h"

namespace moetwin {
namespace {

namespace s4u = simgrid::s4u;

// Latency, then the bytes of every port. The helper sleeps until its bytes would be through if
// nothing else came; where something did, it sleeps again. (SimGrid's own resources share alike,
// as the flow network shows, but cost twenty times as much and round to its precision of 1e-9 s.)
class Fluid : public Network {
 public:
  explicit Fluid(const Machine& machine) : sharing_(rates(machine)) {
    if (machine.profile().faults.empty()) return;
    for (int64_t port = 0; port < machine.ports(); ++port)
      sharing_.schedule(port, machine.changes_of_port(port));
  }

  double pass(const Transfer& transfer) override {
    const Plan& plan = *transfer.plan;
    const double end = carry(transfer.start + plan.latency.value, plan.ports, plan.local.value);
    if (plan.then_ports.empty()) return end;
    return carry(end + plan.then_latency.value, plan.then_ports, 0);
  }

 private:
  /// From `now` until all ports' bytes are through and `seconds` have passed; returns when.
  double carry(double now, const std::vector<PortBytes>& ports, double seconds) {
    sleep_until(now);
    std::vector<PortSharing::Amount> amounts(ports.size());
    for (size_t i = 0; i < amounts.size(); ++i) {
      amounts[i].left = ports[i].bytes;
      sharing_.enter(ports[i].port, now, amounts[i]);
    }
    const double local = now + seconds;
    for (;;) {
      double end = local;
      for (size_t i = 0; i < amounts.size(); ++i)
        end = std::max(end, amounts[i].through >= 0
                                ? amounts[i].through
                                : sharing_.through(ports[i].port, now, amounts[i]));
      if (end <= now + kRounding * end) {
        for (size_t i = 0; i < amounts.size(); ++i)
          if (amounts[i].through < 0) sharing_.take_out(ports[i].port, amounts[i]);
        return end;
      }
      sleep_until(end);
      now = end;
    }
  }

  static constexpr double kRounding = 1e-15;
  static std::vector<double> rates(const Machine& machine) {
    std::vector<double> rates;
    for (int64_t p = 0; p < machine.ports(); ++p) rates.push_back(machine.bandwidth(p).value);
    return rates;
  }
  static void sleep_until(double time) {
    if (time > s4u::Engine::get_clock()) s4u::this_actor::sleep_until(time);
  }
  PortSharing sharing_;
};

}  // namespace

std::unique_ptr<Network> make_fluid_network(const Machine& machine) {
  return std::make_unique<Fluid>(machine);
}

}  // namespace moetwin
