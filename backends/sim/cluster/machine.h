#pragma once
// The ports of the modelled machine: every GPU's two directions into its node's switch, every NIC's
// two directions, and the links of a fabric that could hold messages up. A port is numbered; what
// passes through it shares its bandwidth.

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/sim/cluster/profile.h"

namespace moetwin {

enum class Direction : int32_t { up = 0, down = 1 };  ///< up: away from the GPU

class Machine {
 public:
  Machine(ClusterProfile profile, int64_t world);

  const ClusterProfile& profile() const { return profile_; }
  const NcclProfile& nccl() const { return nccl_; }
  int64_t world() const { return world_; }
  int64_t nodes() const { return nodes_; }
  int64_t node_of(int64_t rank) const { return rank / profile_.gpus_per_node; }
  bool same_node(int64_t a, int64_t b) const { return node_of(a) == node_of(b); }

  int64_t ports() const { return ports_; }
  int64_t nvlink(int64_t rank, Direction d) const { return 2 * rank + static_cast<int64_t>(d); }
  int64_t nic(int64_t rank, Direction d) const {
    return first_nic_ + 2 * nic_of(rank) + static_cast<int64_t>(d);
  }
  /// Number of the NIC that `rank` uses.
  int64_t nic_of(int64_t rank) const;
  /// The fabric's links are ports; 0: it holds nothing up.
  int64_t fabric_links() const { return fabric_.links(); }
  int64_t fabric_port(int64_t link) const { return first_fabric_ + link; }
  /// Appends the links of the fabric between the NICs of two ranks on different nodes.
  void fabric_route(int64_t from, int64_t to, std::vector<int64_t>& links) const {
    fabric_.route(nic_of(from), nic_of(to), links);
  }
  bool is_nvlink(int64_t port) const { return port < first_nic_; }
  bool is_nic(int64_t port) const { return port >= first_nic_ && port < first_fabric_; }
  BytesPerSecond bandwidth(int64_t port) const;
  BytesPerSecond fabric_bandwidth() const { return fabric_.bandwidth(0); }  ///< of its first link
  /// `bytes` through a port of the fabric take as long as the result through its first link.
  double as_of_first(int64_t port, double bytes) const {
    return fabric_.as_of_first(port - first_fabric_, bytes);
  }
  std::string port_name(int64_t port) const;
  /// Something of the machine is slower or away at some time.
  bool has_faults() const { return !faults_of_port_.empty() || !faults_of_gpu_.empty(); }
  /// When faults change a port's rate; empty: never.
  std::vector<RateChange> changes_of_port(int64_t port) const;
  std::vector<RateChange> changes_of_gpu(int64_t rank) const;
  /// Since when a NIC's port is gone for good; infinity: it is not.
  double lost_since(int64_t port) const;
  bool loses_nics() const { return !lost_.empty(); }
  /// The ports of the node's other NICs in the same direction that are there at `time`: what would
  /// pass a lost one is shared evenly among them.
  std::vector<int64_t> instead_of(int64_t port, double time) const;
  /// Latency of one step from one rank to another.
  Seconds latency(int64_t from, int64_t to) const {
    return same_node(from, to) ? profile_.nvlink.latency : profile_.nic.latency;
  }
  /// The ports that bytes from one rank to another pass, in order; none for a rank itself.
  void route(int64_t from, int64_t to, std::vector<int64_t>& ports) const;

 private:
  ClusterProfile profile_;
  NcclProfile nccl_;
  int64_t world_, nodes_, first_nic_, first_fabric_, ports_;
  Fabric fabric_;
  void place(const Fault& fault);
  void check_losses() const;
  std::unordered_map<int64_t, std::vector<Fault>> faults_of_port_, faults_of_gpu_;
  std::unordered_map<int64_t, double> lost_;  ///< by port: since when
};

}  // namespace moetwin
