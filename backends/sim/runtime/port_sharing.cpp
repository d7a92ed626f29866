#include "backends/sim/runtime/port_sharing.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace moetwin {
namespace {
constexpr double kNever = std::numeric_limits<double>::infinity();
}  // namespace

PortSharing::PortSharing(std::vector<double> bytes_per_second) {
  ports_.resize(bytes_per_second.size());
  for (size_t p = 0; p < ports_.size(); ++p) ports_[p].peak = ports_[p].rate = bytes_per_second[p];
}

void PortSharing::schedule(int64_t port, std::vector<RateChange> changes) {
  ports_[static_cast<size_t>(port)].changes = std::move(changes);
}

void PortSharing::advance(Port& port, double now) {
  const auto change = [&] {
    for (;
         port.next_change < port.changes.size() && port.changes[port.next_change].time <= port.time;
         ++port.next_change)
      port.rate = port.peak * port.changes[port.next_change].share;
  };
  for (change(); !port.under_way.empty() && port.time < now; change()) {
    double least = port.under_way[0]->left;
    for (const Amount* a : port.under_way) least = std::min(least, a->left);
    const auto sharing = static_cast<double>(port.under_way.size());
    const double until = port.next_change < port.changes.size()
                             ? std::min(now, port.changes[port.next_change].time)
                             : now;
    const double next = port.rate > 0 ? port.time + least * sharing / port.rate : kNever;
    if (next > until) {
      const double served = (until - port.time) * port.rate / sharing;
      for (Amount* a : port.under_way) a->left -= served;
      port.time = until;
      continue;
    }
    for (Amount* a : port.under_way) {
      a->left -= least;
      if (a->left <= 0) a->through = next;
    }
    std::erase_if(port.under_way, [](const Amount* a) { return a->through >= 0; });
    port.time = next;
  }
  port.time = std::max(port.time, now);
  change();
}

void PortSharing::enter(int64_t port, double now, Amount& amount) {
  Port& p = ports_[static_cast<size_t>(port)];
  advance(p, now);
  p.under_way.push_back(&amount);
}

double PortSharing::through(int64_t port, double now, const Amount& amount) {
  Port& p = ports_[static_cast<size_t>(port)];
  advance(p, now);
  if (amount.through >= 0) return amount.through;
  // Until it is through, every other amount passes as much as it does itself, or all it has left.
  double before = 0;
  for (const Amount* a : p.under_way) before += std::min(a->left, amount.left);
  double at = p.time, rate = p.rate;
  for (size_t c = p.next_change; c < p.changes.size(); ++c) {
    const double passed = (p.changes[c].time - at) * rate;
    if (before <= passed) break;
    before -= passed;
    at = p.changes[c].time;
    rate = p.peak * p.changes[c].share;
  }
  return rate > 0 ? at + before / rate : kNever;
}

void PortSharing::take_out(int64_t port, const Amount& amount) {
  std::erase(ports_[static_cast<size_t>(port)].under_way, &amount);
}

}  // namespace moetwin
