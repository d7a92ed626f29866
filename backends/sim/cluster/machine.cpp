#include "backends/sim/cluster/machine.h"

#include <fmt/format.h>

namespace moetwin {

Machine::Machine(ClusterProfile profile, int64_t world)
    : profile_(std::move(profile)),
      nccl_(profile_.nccl()),
      world_(world),
      nodes_((world + profile_.gpus_per_node - 1) / profile_.gpus_per_node),
      first_nic_(2 * world),
      first_fabric_(first_nic_ + 2 * nodes_ * profile_.nics_per_node),
      fabric_(profile_.fabric, nodes_, profile_.nics_per_node, profile_.nic.effective()) {
  ports_ = first_fabric_ + fabric_.links();
}

int64_t Machine::nic_of(int64_t rank) const {
  const int64_t gpus_per_nic = profile_.gpus_per_node / profile_.nics_per_node;
  return node_of(rank) * profile_.nics_per_node + (rank % profile_.gpus_per_node) / gpus_per_nic;
}

BytesPerSecond Machine::bandwidth(int64_t port) const {
  if (port < first_nic_) return profile_.nvlink.effective();
  if (port < first_fabric_) return profile_.nic.effective();
  return fabric_.bandwidth(port - first_fabric_);
}

std::string Machine::port_name(int64_t port) const {
  const char* direction = port % 2 == 0 ? "up" : "down";
  if (port < first_nic_) return fmt::format("gpu{}-{}", port / 2, direction);
  if (port < first_fabric_) return fmt::format("nic{}-{}", (port - first_nic_) / 2, direction);
  return fabric_.name(port - first_fabric_);
}

std::vector<RateChange> Machine::changes_of_port(int64_t port) const {
  std::vector<Fault> here;
  for (const Fault& f : profile_.faults)
    for (const Direction d : {Direction::up, Direction::down})
      if (f.rank < world_ && ((f.what == Fault::What::nvlink && port == nvlink(f.rank, d)) ||
                              (f.what == Fault::What::nic && port == nic(f.rank, d))))
        here.push_back(f);
  return rate_changes(here);
}

std::vector<RateChange> Machine::changes_of_gpu(int64_t rank) const {
  std::vector<Fault> here;
  for (const Fault& f : profile_.faults)
    if (f.what == Fault::What::gpu && f.rank == rank) here.push_back(f);
  return rate_changes(here);
}

void Machine::route(int64_t from, int64_t to, std::vector<int64_t>& ports) const {
  ports.clear();
  if (from == to) return;
  if (same_node(from, to)) {
    ports.assign({nvlink(from, Direction::up), nvlink(to, Direction::down)});
    return;
  }
  ports.push_back(nic(from, Direction::up));
  const auto first = static_cast<std::ptrdiff_t>(ports.size());
  fabric_route(from, to, ports);
  for (auto link = ports.begin() + first; link != ports.end(); ++link) *link = fabric_port(*link);
  ports.push_back(nic(to, Direction::down));
}

}  // namespace moetwin
