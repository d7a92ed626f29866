#pragma once
// What a collective asks of the machine, as NCCL would move it: latency terms and the bytes it puts
// through each port. One file per algorithm fills in a plan.

#include <cstdint>
#include <vector>

#include "backends/sim/cluster/machine.h"
#include "core/base/units.h"
#include "core/device/communicator.h"

namespace moetwin {

enum class Algorithm : uint8_t { automatic, ring, tree };
/// "auto" | "ring" | "tree"; throws Error(configuration).
Algorithm parse_algorithm(const std::string& name);
/// What NCCL would choose from under this value of NCCL_ALGO ("Tree", "ring", "^Tree", a list):
/// ring or tree where only one of them is left, else automatic. Others than these two are not
/// modelled.
Algorithm allowed_by_nccl(const std::string& value);

/// How the members of a group lie on nodes.
struct NodesOfGroup {
  NodesOfGroup(const Group& group, const Machine& machine);
  int64_t nodes = 0;
  int64_t fewest = 0, most = 0;        ///< members on one node
  std::vector<int64_t> members_on;     ///< by node in order of appearance
  std::vector<int64_t> node_index;     ///< of each member: index into members_on
  std::vector<int64_t> index_on_node;  ///< of each member
};

/// A collective without its data.
struct CollectiveShape {
  CollectiveKind kind = CollectiveKind::barrier;
  Group group;
  const NodesOfGroup* on = nullptr;
  /// all_reduce, broadcast, send: bytes of the tensor; all_gather, reduce_scatter: of the longer
  /// one.
  double bytes = 0;
  int64_t root = 0;          ///< of a broadcast
  int64_t from = 0, to = 0;  ///< of a send, as group ranks
  /// all_to_all_v: bytes from member i to member j at [i * n + j].
  std::vector<double> pair_bytes;
};

struct PortBytes {
  int64_t port = 0;
  double bytes = 0;
};

struct Plan {
  Algorithm algorithm = Algorithm::ring;
  Seconds latency;                          ///< passes before the bytes
  std::vector<PortBytes> ports;             ///< every port at most once, in order
  Seconds local;                            ///< copies inside a GPU, beside the ports
  std::vector<double> sent, sent_off_node;  ///< bytes to other ranks, by member

  bool empty() const { return ports.empty() && local.value == 0 && latency.value == 0; }
  /// Seconds when nothing else uses the ports.
  Seconds alone(const Machine& machine) const;
  /// Nothing for `members` members; keeps memory for the next use.
  void clear(int64_t members);
};

/// Fills in the plan of `shape`; `automatic` takes the faster of ring and tree when alone, ring
/// when equal. Zero bytes give an empty plan, except for a barrier.
void make_plan(const CollectiveShape& shape, const Machine& machine, Algorithm algorithm,
               Plan& plan);

// The algorithms. Each is given a cleared plan.
/// Ring (Patarasuk and Yuan 2009): all_reduce 2(n-1) steps of bytes/n, all_gather and
/// reduce_scatter n-1 steps. Over nodes as many rings as the node with fewest members has, each
/// with its own NIC.
void plan_ring(const CollectiveShape& shape, const Machine& machine, Plan& plan);
/// Double binary tree (Sanders et al. 2009) over nodes with a chain inside each, all_reduce only,
/// as NCCL builds it: 2 ceil(log2 nodes) steps between nodes, 2 (members on a node - 1) inside.
void plan_tree(const CollectiveShape& shape, const Machine& machine, Plan& plan);
/// Grouped send and recv of every pair at once.
void plan_all_to_all(const CollectiveShape& shape, const Machine& machine, Plan& plan);
/// Chain from the root in pieces: n-1 steps of latency, the bytes once through every port.
void plan_broadcast(const CollectiveShape& shape, const Machine& machine, Plan& plan);
void plan_send(const CollectiveShape& shape, const Machine& machine, Plan& plan);
/// Up and down the tree with no bytes.
void plan_barrier(const CollectiveShape& shape, const Machine& machine, Plan& plan);

}  // namespace moetwin
