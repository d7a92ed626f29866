#include "backends/sim/representative/collective_prices.h"

#include <algorithm>
#include <numeric>

namespace moetwin {

namespace {
std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t> key_of(const Group& g) {
  return {g.base, g.n0, g.stride0, g.n1, g.stride1};
}
}  // namespace

void PortUse::mix(double before, const PortUse& use, double seconds) {
  const double all = before + seconds;
  if (all <= 0) return;
  const auto mean = [&](double& mine, double other) {
    mine = (mine * before + other * seconds) / all;
  };
  mean(nvlink, use.nvlink);
  mean(nic, use.nic);
  mean(beside.products, use.beside.products);
  mean(beside.others, use.beside.others);
}

CollectivePrices::CollectivePrices(const Machine& machine, const NcclChoice& choice)
    : machine_(machine), choice_(choice), corrections_(machine.profile().corrections) {}

const NodesOfGroup& CollectivePrices::nodes(const Group& group) {
  const auto key = key_of(group);
  const auto found = nodes_.find(key);
  return found != nodes_.end() ? found->second
                               : nodes_.emplace(key, NodesOfGroup(group, machine_)).first->second;
}

CollectivePrice CollectivePrices::planned(CollectiveShape& shape, const char* op,
                                          const std::string& name, double listed_bytes) {
  shape.on = &nodes(shape.group);
  make_plan(shape, machine_, choice_, plan_);
  CollectivePrice price;
  const auto members = static_cast<double>(shape.group.size());
  price.sent = std::accumulate(plan_.sent.begin(), plan_.sent.end(), 0.0) / members;
  price.sent_off_node =
      std::accumulate(plan_.sent_off_node.begin(), plan_.sent_off_node.end(), 0.0) / members;
  price.way = plan_.way;
  if (plan_.empty()) return price;
  // Who else is on a port: the ranks that are on it over those of this group.
  const ClusterProfile& profile = machine_.profile();
  const bool pair = shape.kind == CollectiveKind::send;
  std::map<int64_t, int64_t> on_nic;
  for (int64_t i = 0; i < (pair ? 2 : shape.group.size()); ++i)
    ++on_nic[machine_.nic(shape.group.member(i), Direction::up)];
  const int64_t on_a_node = std::min(profile.gpus_per_node, machine_.world());
  const int64_t on_a_nic = std::max<int64_t>(1, on_a_node / profile.nics_per_node);
  const auto factor = [&](int64_t port) {
    if (machine_.is_nvlink(port)) return 1.0;
    if (!machine_.is_nic(port))  // links of the fabric: all of a node's ranks pass alike
      return static_cast<double>(on_a_node) /
             static_cast<double>(pair ? 1 : std::min(on_a_node, shape.on->most));
    // Both directions of a NIC stand side by side.
    const auto found = on_nic.find(port - (port - machine_.nic(0, Direction::up)) % 2);
    const int64_t own = found == on_nic.end() ? 1 : found->second;
    return static_cast<double>(on_a_nic) / static_cast<double>(std::min(own, on_a_nic));
  };
  for (auto* ports : {&plan_.ports, &plan_.then_ports})
    for (PortBytes& port : *ports) {
      port.bytes *= factor(port.port);
      double& use = machine_.is_nvlink(port.port) ? price.ports.nvlink : price.ports.nic;
      use = std::max(use, (Bytes(port.bytes) / machine_.bandwidth(port.port)).value);
    }
  price.seconds = plan_.alone(machine_).value *
                  (corrections_.empty() ? 1 : corrections_.factor(op, name, listed_bytes));
  if (price.seconds > 0) {
    price.ports.nvlink = std::min(1.0, price.ports.nvlink / price.seconds);
    price.ports.nic = std::min(1.0, price.ports.nic / price.seconds);
    price.ports.beside = beside(profile.gpu, pair, pair ? shape.bytes : price.sent, price.seconds);
  }
  return price;
}

const CollectivePrice& CollectivePrices::price(CollectiveKind kind, const Group& group,
                                               const std::string& name, double bytes,
                                               double listed_bytes) {
  auto& known = prices_;
  const auto key =
      std::make_tuple(kind, key_of(group), bytes, corrections_.empty() ? std::string() : name);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  CollectiveShape shape;
  shape.kind = kind;
  shape.group = group;
  shape.bytes = bytes;
  shape.from = 0;
  shape.to = 1;
  return known.emplace(key, planned(shape, collective_name(kind), name, listed_bytes))
      .first->second;
}

CollectivePrice CollectivePrices::all_to_all(const Group& group, const std::string& name,
                                             std::vector<double> pair_bytes) {
  CollectiveShape shape;
  shape.kind = CollectiveKind::all_to_all_v;
  shape.group = group;
  shape.pair_bytes = std::move(pair_bytes);
  shape.of_tokens = name == "ep";
  double listed = 0;
  const auto n = static_cast<size_t>(group.size());
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j)
      if (i != j) listed += shape.pair_bytes[i * n + j];
  return planned(shape, collective_name(shape.kind), name, listed / static_cast<double>(n));
}

}  // namespace moetwin
