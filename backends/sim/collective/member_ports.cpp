#include "backends/sim/collective/member_ports.h"

#include <algorithm>

namespace moetwin {

MemberPorts::MemberPorts(const CollectiveShape& shape, const Machine& machine)
    : shape_(shape), machine_(machine) {
  const auto n = static_cast<size_t>(shape.group.size());
  for (auto* list : {&nvlink_up, &nvlink_down, &nic_up, &nic_down}) list->assign(n, 0);
  fabric_.assign(shape.on->nodes > 1 ? static_cast<size_t>(machine.fabric_links()) : 0, 0);
}

void MemberPorts::add_fabric(int64_t from, int64_t to, double bytes) {
  route_.clear();
  machine_.fabric_route(shape_.group.member(from), shape_.group.member(to), route_);
  for (const int64_t link : route_) fabric_[static_cast<size_t>(link)] += bytes;
}

// Ports in about ascending order, so that sorting them is cheap; one may come more than once.
template <class Each>
void MemberPorts::each_port(Each&& each) const {
  const size_t n = nvlink_up.size();
  const auto rank = [&](size_t i) { return shape_.group.member(static_cast<int64_t>(i)); };
  for (size_t i = 0; i < n; ++i) {
    if (nvlink_up[i] > 0) each(machine_.nvlink(rank(i), Direction::up), nvlink_up[i]);
    if (nvlink_down[i] > 0) each(machine_.nvlink(rank(i), Direction::down), nvlink_down[i]);
  }
  for (size_t i = 0; i < n; ++i) {
    if (nic_up[i] > 0) each(machine_.nic(rank(i), Direction::up), nic_up[i]);
    if (nic_down[i] > 0) each(machine_.nic(rank(i), Direction::down), nic_down[i]);
  }
  for (size_t link = 0; link < fabric_.size(); ++link)
    if (fabric_[link] > 0) each(machine_.fabric_port(static_cast<int64_t>(link)), fabric_[link]);
}

namespace {

/// Every port once, in order.
void merge(std::vector<PortBytes>& ports) {
  const auto before = [](const PortBytes& a, const PortBytes& b) { return a.port < b.port; };
  if (!std::is_sorted(ports.begin(), ports.end(), before))
    std::stable_sort(ports.begin(), ports.end(), before);
  size_t kept = 0;
  for (size_t i = 0; i < ports.size(); ++i)
    if (kept > 0 && ports[kept - 1].port == ports[i].port)
      ports[kept - 1].bytes += ports[i].bytes;
    else
      ports[kept++] = ports[i];
  ports.resize(kept);
}

}  // namespace

void MemberPorts::busiest(Work& work) const {
  std::vector<PortBytes> ports;
  each_port([&](int64_t port, double bytes) { ports.push_back({port, bytes}); });
  merge(ports);
  for (const PortBytes& p : ports) {
    if (machine_.is_nvlink(p.port))
      work.nvlink = std::max(work.nvlink, Bytes(p.bytes));
    else if (machine_.is_nic(p.port))
      work.nic = std::max(work.nic, Bytes(p.bytes));
    else
      work.fabric = std::max(work.fabric, Bytes(machine_.as_of_first(p.port, p.bytes)));
  }
}

void MemberPorts::emit(Plan& plan) const {
  plan.ports.clear();
  each_port([&](int64_t port, double bytes) {
    plan.ports.push_back({port, bytes / (machine_.is_nvlink(port) ? plan.figures.nvlink_share
                                                                  : plan.figures.nic_share)});
  });
  merge(plan.ports);
}

void MemberPorts::count_sent(Plan& plan) const {
  for (size_t i = 0; i < nvlink_up.size(); ++i) {
    plan.sent[i] += nvlink_up[i] + nic_up[i];
    plan.sent_off_node[i] += nic_up[i];
  }
}

}  // namespace moetwin
