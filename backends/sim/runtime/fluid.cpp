#include <algorithm>
#include <simgrid/s4u.hpp>

#include "backends/sim/runtime/network.h"

namespace moetwin {
namespace {

namespace s4u = simgrid::s4u;
constexpr size_t kMostPorts = 32;

// A port is a SimGrid host whose speed is the port's bandwidth, and bytes are work on it: fair
// sharing of one resource, at a third of the cost of a network flow over one link.
class Fluid : public Network {
 public:
  Fluid(const Machine& machine, s4u::NetZone* zone) : machine_(machine) {
    for (int64_t p = 0; p < machine.ports(); ++p)
      ports_.push_back(zone->create_host(machine.port_name(p), machine.bandwidth(p).value));
  }

  void pass(const Transfer& transfer) override {
    const Plan& plan = *transfer.plan;
    if (plan.latency.value > 0) s4u::this_actor::sleep_for(plan.latency.value);
    std::vector<PortBytes> slowest = plan.ports;
    if (slowest.size() > kMostPorts) keep_slowest(slowest);
    std::vector<s4u::ExecPtr> parts;
    parts.reserve(slowest.size());
    const double begin = s4u::Engine::get_clock();
    for (const PortBytes& p : slowest)
      parts.push_back(s4u::Exec::init()
                          ->set_flops_amount(p.bytes)
                          ->set_host(ports_[static_cast<size_t>(p.port)])
                          ->start());
    for (const s4u::ExecPtr& part : parts) part->wait();
    const double rest = begin + plan.local.value - s4u::Engine::get_clock();
    if (rest > 0) s4u::this_actor::sleep_for(rest);
  }

 private:
  void keep_slowest(std::vector<PortBytes>& ports) const {
    const auto seconds = [this](const PortBytes& p) {
      return p.bytes / machine_.bandwidth(p.port).value;
    };
    // Equal ports keep their order, so that the choice is the same on every machine.
    std::stable_sort(ports.begin(), ports.end(), [&](const PortBytes& a, const PortBytes& b) {
      return seconds(a) > seconds(b);
    });
    ports.resize(kMostPorts);
  }

  const Machine& machine_;
  std::vector<s4u::Host*> ports_;
};

}  // namespace

std::unique_ptr<Network> make_fluid_network(const Machine& machine, s4u::NetZone* zone) {
  return std::make_unique<Fluid>(machine, zone);
}

}  // namespace moetwin
