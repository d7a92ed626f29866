#include "backends/sim/runtime/port_sharing.h"

#include <algorithm>

namespace moetwin {

PortSharing::PortSharing(std::vector<double> bytes_per_second) {
  ports_.resize(bytes_per_second.size());
  for (size_t p = 0; p < ports_.size(); ++p) ports_[p].rate = bytes_per_second[p];
}

void PortSharing::advance(Port& port, double now) {
  while (!port.under_way.empty() && port.time < now) {
    double least = port.under_way[0]->left;
    for (const Amount* a : port.under_way) least = std::min(least, a->left);
    const auto sharing = static_cast<double>(port.under_way.size());
    const double next = port.time + least * sharing / port.rate;
    if (next > now) {
      const double served = (now - port.time) * port.rate / sharing;
      for (Amount* a : port.under_way) a->left -= served;
      port.time = now;
      return;
    }
    for (Amount* a : port.under_way) {
      a->left -= least;
      if (a->left <= 0) a->through = next;
    }
    std::erase_if(port.under_way, [](const Amount* a) { return a->through >= 0; });
    port.time = next;
  }
  port.time = std::max(port.time, now);
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
  return p.time + before / p.rate;
}

void PortSharing::take_out(int64_t port, const Amount& amount) {
  std::erase(ports_[static_cast<size_t>(port)].under_way, &amount);
}

}  // namespace moetwin
