#pragma once
// Bytes that the members of a group put through their links, added up while a plan is made.

#include <cstdint>
#include <vector>

#include "backends/sim/collective/plan.h"

namespace moetwin {

class MemberPorts {
 public:
  MemberPorts(const CollectiveShape& shape, const Machine& machine);

  /// `bytes` go from one member (its group rank) to another, by NVLink or by NIC.
  void pass(int64_t from, int64_t to, double bytes) {
    const auto a = static_cast<size_t>(from), b = static_cast<size_t>(to);
    if (shape_.on->node_index[a] == shape_.on->node_index[b]) {
      nvlink_up[a] += bytes;
      nvlink_down[b] += bytes;
    } else {
      nic_up[a] += bytes;
      nic_down[b] += bytes;
      pass_fabric(from, to, bytes);
    }
  }
  /// Only through what lies between the two members' NICs.
  void pass_fabric(int64_t from, int64_t to, double bytes) {
    if (!fabric_.empty()) add_fabric(from, to, bytes);
  }
  /// The busiest ports.
  void busiest(Work& work) const;
  /// Sets the plan's ports: the bytes over the shares of its figures.
  void emit(Plan& plan) const;
  /// Adds what was passed to the plan's `sent` and `sent_off_node`.
  void count_sent(Plan& plan) const;

  std::vector<double> nvlink_up, nvlink_down, nic_up, nic_down;  ///< by member

 private:
  void add_fabric(int64_t from, int64_t to, double bytes);
  template <class Each>
  void each_port(Each&& each) const;
  const CollectiveShape& shape_;
  const Machine& machine_;
  std::vector<double> fabric_;  ///< by link
  std::vector<int64_t> route_;
};

}  // namespace moetwin
