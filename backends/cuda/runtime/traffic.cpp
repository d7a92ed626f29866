#include "backends/cuda/runtime/traffic.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/device/bytes_sent.h"

namespace moetwin {
namespace {

int64_t row_bytes(const Tensor& tensor) {
  int64_t bytes = dtype_size(tensor.dtype);
  for (int d = 1; d < tensor.shape.rank; ++d) bytes *= tensor.shape[d];
  return bytes;
}

// As many rings as the node with fewest members has; ring r leaves and enters a node at its member
// r. One node: one ring, nothing leaves.
int64_t leaves_node(int64_t passed, const Group& group, int64_t rank_in_group,
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
  return leaves ? passed / fewest : 0;
}

}  // namespace

SentVolume sent_by(const CollectiveCall& call, const Group& group, int64_t rank,
                   const std::vector<int64_t>& node_of) {
  SentVolume sent;
  sent.bytes = bytes_sent(call, rank, group.size());
  const auto elsewhere = [&](int64_t other) {
    return node_of[static_cast<size_t>(group.member(other))] !=
           node_of[static_cast<size_t>(group.member(rank))];
  };
  switch (call.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
      sent.off_node = leaves_node(sent.bytes, group, rank, node_of);
      break;
    case CollectiveKind::broadcast:
      if (elsewhere((rank + 1) % group.size())) sent.off_node = sent.bytes;
      break;
    case CollectiveKind::send:
      if (elsewhere(call.peer)) sent.off_node = sent.bytes;
      break;
    case CollectiveKind::all_to_all_v:
      for (int64_t i = 0; i < group.size(); ++i)
        if (elsewhere(i))
          sent.off_node += (*call.send_rows)[static_cast<size_t>(i)] * row_bytes(call.send);
      break;
    case CollectiveKind::recv:
    case CollectiveKind::barrier:
      break;
  }
  return sent;
}

void TrafficLog::add(const CollectiveCall& call, const std::string& group, int64_t members,
                     const SentVolume& sent) {
  const char* kind = collective_name(call.kind);
  auto it = std::find_if(traffic_.begin(), traffic_.end(), [&](const Traffic& t) {
    return t.kind == kind && t.purpose == call.purpose && t.group == group;
  });
  if (it == traffic_.end())
    it = traffic_.insert(it, Traffic{kind, call.purpose, group, "", members});
  ++it->calls;
  it->bytes += sent.bytes;
  it->bytes_off_node += sent.off_node;
}

std::vector<Traffic> TrafficLog::take() { return std::exchange(traffic_, {}); }

}  // namespace moetwin
