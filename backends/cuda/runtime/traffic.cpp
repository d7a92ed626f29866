#include "backends/cuda/runtime/traffic.h"

#include <algorithm>
#include <map>
#include <utility>

namespace moetwin {
namespace {

int64_t row_bytes(const Tensor& tensor) {
  int64_t bytes = dtype_size(tensor.dtype);
  for (int d = 1; d < tensor.shape.rank; ++d) bytes *= tensor.shape[d];
  return bytes;
}

// As many rings as the node with fewest members has; ring r leaves and enters a node at its member
// r. One node: one ring, nothing leaves.
Sent in_a_ring(double passed, const Group& group, int64_t rank_in_group,
               const std::vector<int64_t>& node_of) {
  std::map<int64_t, int64_t> members;
  int64_t index_on_node = 0;
  for (int64_t i = 0; i < group.size(); ++i) {
    const int64_t node = node_of[static_cast<size_t>(group.member(i))];
    if (i == rank_in_group) index_on_node = members[node];
    ++members[node];
  }
  int64_t fewest = group.size();
  for (const auto& [node, n] : members) fewest = std::min(fewest, n);
  const bool leaves = members.size() > 1 && index_on_node < fewest;
  return {static_cast<int64_t>(passed),
          leaves ? static_cast<int64_t>(passed / static_cast<double>(fewest)) : 0};
}

}  // namespace

Sent sent_by(const CollectiveCall& call, const Group& group, int64_t rank,
             const std::vector<int64_t>& node_of) {
  const auto n = static_cast<double>(group.size());
  const auto share = [&](double rounds, int64_t bytes) {
    return in_a_ring(rounds * (n - 1) / n * static_cast<double>(bytes), group, rank, node_of);
  };
  const auto elsewhere = [&](int64_t other) {
    return node_of[static_cast<size_t>(group.member(other))] !=
           node_of[static_cast<size_t>(group.member(rank))];
  };
  switch (call.kind) {
    case CollectiveKind::all_reduce:
      return share(2, call.send.bytes());
    case CollectiveKind::all_gather:
      return share(1, call.recv.bytes());
    case CollectiveKind::reduce_scatter:
      return share(1, call.send.bytes());
    case CollectiveKind::broadcast: {  // a chain from the root: its last member sends nothing
      const int64_t next = (rank + 1) % group.size();
      if (next == call.peer) return {};
      return {call.send.bytes(), elsewhere(next) ? call.send.bytes() : 0};
    }
    case CollectiveKind::send:
      return {call.send.bytes(), elsewhere(call.peer) ? call.send.bytes() : 0};
    case CollectiveKind::all_to_all_v: {
      Sent sent;
      for (int64_t i = 0; i < group.size(); ++i) {
        if (i == rank) continue;
        const int64_t bytes = (*call.send_rows)[static_cast<size_t>(i)] * row_bytes(call.send);
        sent.bytes += bytes;
        if (elsewhere(i)) sent.off_node += bytes;
      }
      return sent;
    }
    case CollectiveKind::recv:
    case CollectiveKind::barrier:
      return {};
  }
  return {};
}

void TrafficLog::add(const CollectiveCall& call, const std::string& group, const Sent& sent) {
  const char* kind = collective_name(call.kind);
  auto it = std::find_if(traffic_.begin(), traffic_.end(), [&](const Traffic& t) {
    return t.kind == kind && t.purpose == call.purpose && t.group == group;
  });
  if (it == traffic_.end()) it = traffic_.insert(it, Traffic{kind, call.purpose, group, 0, 0, 0});
  ++it->calls;
  it->bytes += sent.bytes;
  it->bytes_off_node += sent.off_node;
}

std::vector<Traffic> TrafficLog::take() { return std::exchange(traffic_, {}); }

}  // namespace moetwin
