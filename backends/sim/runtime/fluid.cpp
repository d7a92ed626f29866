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
  explicit Fluid(const Machine& machine) : sharing_(rates(machine)) {}

  double pass(const Transfer& transfer) override {
    const Plan& plan = *transfer.plan;
    double now = transfer.start + plan.latency.value;
    sleep_until(now);
    std::vector<PortSharing::Amount> amounts(plan.ports.size());
    for (size_t i = 0; i < amounts.size(); ++i) {
      amounts[i].left = plan.ports[i].bytes;
      sharing_.enter(plan.ports[i].port, now, amounts[i]);
    }
    const double local = now + plan.local.value;
    for (;;) {
      double end = local;
      for (size_t i = 0; i < amounts.size(); ++i)
        end = std::max(end, amounts[i].through >= 0
                                ? amounts[i].through
                                : sharing_.through(plan.ports[i].port, now, amounts[i]));
      if (end <= now + kRounding * end) {
        for (size_t i = 0; i < amounts.size(); ++i)
          if (amounts[i].through < 0) sharing_.take_out(plan.ports[i].port, amounts[i]);
        return end;
      }
      sleep_until(end);
      now = end;
    }
  }

 private:
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
