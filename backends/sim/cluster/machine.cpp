#include "backends/sim/cluster/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/base/error.h"

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
  for (const Fault& fault : profile_.faults) {
    if (!fault.drawn()) {
      if (fault.rank < world_) place(fault);
      continue;
    }
    const bool nics = fault.what == Fault::What::nic;
    constexpr double kMost = 5e6;
    const double units = fault.rank >= 0 ? 1.0 : static_cast<double>(world_);
    const double expected = units * (fault.to - fault.from) / (fault.mean_between + fault.lasting);
    if (expected > kMost)
      throw Error(ErrorClass::configuration,
                  fmt::format("faults: \"{}\" comes about {:.2g} times in {:g} s; legal: to {:g} "
                              "times; give an earlier \"to_seconds\"",
                              fault_text(fault), expected, fault.to - fault.from, kMost));
    int64_t last = -1;  // a NIC is drawn for once, with the first rank that uses it
    for (int64_t rank = std::max(fault.rank, int64_t{0}); rank < world_; ++rank) {
      const int64_t unit = nics ? nic_of(rank) : rank;
      if (unit != last)
        for (const Fault& each : draw_faults(fault, unit, rank)) place(each);
      last = unit;
      if (fault.rank >= 0) break;
    }
  }
  check_losses();
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

void Machine::place(const Fault& fault) {
  if (fault.what == Fault::What::gpu) {
    faults_of_gpu_[fault.rank].push_back(fault);
    return;
  }
  for (const Direction d : {Direction::up, Direction::down}) {
    const int64_t port =
        fault.what == Fault::What::nvlink ? nvlink(fault.rank, d) : nic(fault.rank, d);
    faults_of_port_[port].push_back(fault);
    if (!fault.lost_for_good()) continue;
    const auto [at, first] = lost_.emplace(port, fault.from);
    if (!first) at->second = std::min(at->second, fault.from);
  }
}

void Machine::check_losses() const {
  for (const auto& [port, since] : lost_)
    if (instead_of(port, std::numeric_limits<double>::max()).empty())
      throw Error(ErrorClass::configuration,
                  fmt::format("faults: node {} loses every NIC for good ({} of {}): nothing would "
                              "leave it; give one of them \"to_seconds\"",
                              (port - first_nic_) / 2 / profile_.nics_per_node,
                              profile_.nics_per_node, profile_.nics_per_node));
}

double Machine::lost_since(int64_t port) const {
  const auto found = lost_.find(port);
  return found == lost_.end() ? std::numeric_limits<double>::infinity() : found->second;
}

std::vector<int64_t> Machine::instead_of(int64_t port, double time) const {
  const int64_t nics = profile_.nics_per_node, number = (port - first_nic_) / 2;
  std::vector<int64_t> others;
  for (int64_t nic = number / nics * nics; nic < (number / nics + 1) * nics; ++nic) {
    const int64_t other = first_nic_ + 2 * nic + (port - first_nic_) % 2;
    if (other != port && lost_since(other) > time) others.push_back(other);
  }
  return others;
}

std::vector<RateChange> Machine::changes_of_port(int64_t port) const {
  const auto found = faults_of_port_.find(port);
  return found == faults_of_port_.end() ? std::vector<RateChange>{} : rate_changes(found->second);
}

std::vector<RateChange> Machine::changes_of_gpu(int64_t rank) const {
  const auto found = faults_of_gpu_.find(rank);
  return found == faults_of_gpu_.end() ? std::vector<RateChange>{} : rate_changes(found->second);
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
