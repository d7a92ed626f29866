#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
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
  explicit Fluid(const Machine& machine) : machine_(machine), sharing_(rates(machine)) {
    if (!machine.has_faults()) return;
    for (int64_t port = 0; port < machine.ports(); ++port)
      sharing_.schedule(port, machine.changes_of_port(port));
  }

  double pass(const Transfer& transfer) override {
    const Plan& plan = *transfer.plan;
    const double end = carry(transfer.start + plan.latency.value, plan.ports, plan.message.value);
    if (plan.then_ports.empty()) return end;
    return carry(end + plan.then_latency.value, plan.then_ports, 0);
  }

 private:
  /// From `now` until all ports' bytes are through and `seconds` have passed; returns when.
  double carry(double now, const std::vector<PortBytes>& ports, double seconds) {
    sleep_until(now);
    if (machine_.loses_nics()) return carry_around(now, ports, seconds);
    std::vector<PortSharing::Amount> amounts(ports.size());
    for (size_t i = 0; i < amounts.size(); ++i) {
      amounts[i].left = ports[i].bytes;
      sharing_.enter(ports[i].port, now, amounts[i]);
    }
    const double sent = now + seconds;
    for (;;) {
      double end = sent;
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

  /// The same where NICs are lost for good: what is left to pass one when it goes, and all that
  /// comes later, is shared among the others of its node.
  double carry_around(double now, const std::vector<PortBytes>& ports, double seconds) {
    struct Part {
      int64_t port;
      PortSharing::Amount amount;
    };
    std::deque<Part> parts;  // amounts stay where they are
    const auto enter = [&](int64_t port, double bytes) {
      const auto put = [&](int64_t at, double part) {
        parts.push_back({at, {part}});
        sharing_.enter(at, now, parts.back().amount);
      };
      if (machine_.lost_since(port) > now) return put(port, bytes);
      const std::vector<int64_t> others = machine_.instead_of(port, now);
      for (const int64_t other : others) put(other, bytes / static_cast<double>(others.size()));
    };
    for (const PortBytes& p : ports) enter(p.port, p.bytes);
    const double sent = now + seconds;
    for (;;) {
      double end = sent, loss = std::numeric_limits<double>::infinity();
      for (const Part& part : parts) {
        const bool through = part.amount.through >= 0;
        end = std::max(
            end, through ? part.amount.through : sharing_.through(part.port, now, part.amount));
        if (part.amount.through < 0) loss = std::min(loss, machine_.lost_since(part.port));
      }
      if (std::isfinite(end) && end <= now + kRounding * end) {
        for (Part& part : parts)
          if (part.amount.through < 0) sharing_.take_out(part.port, part.amount);
        return end;
      }
      now = std::min(end, loss);
      sleep_until(now);
      if (loss > now) continue;
      for (size_t i = 0, have = parts.size(); i < have; ++i) {
        Part& part = parts[i];
        if (part.amount.through >= 0 || machine_.lost_since(part.port) > now) continue;
        sharing_.through(part.port, now, part.amount);  // brings what is left up to now
        if (part.amount.through >= 0) continue;
        sharing_.take_out(part.port, part.amount);
        part.amount.through = now;
        enter(part.port, part.amount.left);
      }
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
  const Machine& machine_;
  PortSharing sharing_;
};

}  // namespace

std::unique_ptr<Network> make_fluid_network(const Machine& machine) {
  return std::make_unique<Fluid>(machine);
}

}  // namespace moetwin
