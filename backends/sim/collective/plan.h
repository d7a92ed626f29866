#pragma once
// What a collective asks of the machine, as NCCL would move it: latency terms and the bytes it puts
// through each port. One file per algorithm fills in a plan.

#include <cstdint>
#include <optional>
#include <vector>

#include "backends/sim/cluster/machine.h"
#include "backends/sim/collective/choice.h"
#include "backends/sim/collective/work.h"
#include "core/base/units.h"
#include "core/device/communicator.h"

namespace moetwin {

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
  bool of_tokens = true;  ///< all_to_all_v: its rows are copies of tokens, for experts
};
/// The way that an exchange goes: rows that are no copies are not deduplicated.
AllToAllChoice way_of(const CollectiveShape& shape, const NcclChoice& choice);

struct PortBytes {
  int64_t port = 0;
  double bytes = 0;  ///< over the share of the port that is reached: it is taken up as long
};

struct Plan {
  Algorithm algorithm = Algorithm::ring;  ///< of all_reduce, all_gather, reduce_scatter
  Protocol protocol = Protocol::simple;
  ProtocolFigures figures;                  ///< of both
  Seconds latency;                          ///< passes before the bytes
  std::vector<PortBytes> ports;             ///< every port at most once, in order
  Seconds message;                          ///< of the largest message, beside the ports
  Seconds then_latency;                     ///< of a second stage, after the first's bytes
  std::vector<PortBytes> then_ports;        ///< empty: there is none
  std::vector<double> sent, sent_off_node;  ///< bytes to other ranks, by member

  bool empty() const { return ports.empty() && message.value == 0 && latency.value == 0; }
  /// Seconds when nothing else uses the ports.
  Seconds alone(const Machine& machine) const;
  /// "ring, LL128"; of an exchange its way: "pairs, Simple", "PXN, Simple", ...
  const char* way = "";
  /// Nothing for `members` members; keeps memory for the next use.
  void clear(int64_t members);
};

/// Plan::way of what a plan has chosen: a literal.
const char* way_name(CollectiveKind kind, const Plan& plan, const AllToAllChoice& exchange);

/// Fills in the plan of `shape`: of what `choice` allows and the machine has, the algorithm and
/// protocol with the least time alone, the first of ring, tree, nvls and of ll, ll128, simple when
/// equal. Where `choice` leaves nothing that the machine has, all counts. Zero bytes give an empty
/// plan, except for a barrier.
void make_plan(const CollectiveShape& shape, const Machine& machine, const NcclChoice& choice,
               Plan& plan);

/// What make_plan chooses from for a collective: an algorithm's work, which no figure changes.
struct Candidate {
  Algorithm algorithm = Algorithm::ring;
  ByProtocol NcclProfile::*figures = nullptr;
  Work work;
  double mesh_share = 1;  ///< of a GPU's NVLinks, those between the members of a node
};
std::vector<Candidate> candidates(const CollectiveShape& shape, const Machine& machine,
                                  const NcclChoice& choice);
/// The protocol that makes a candidate fastest, and its seconds; nullopt where the profile has no
/// figures of it that are allowed.
struct Chosen {
  Protocol protocol = Protocol::simple;
  Seconds seconds;
};
std::optional<Chosen> fastest(const Candidate& candidate, const Machine& machine,
                              const NcclChoice& choice);

// The algorithms. Each is given a cleared plan with its figures.
void plan_ring(const CollectiveShape& shape, const Machine& machine, Plan& plan);
void plan_tree(const CollectiveShape& shape, const Machine& machine, Plan& plan);
void plan_nvls(const CollectiveShape& shape, const Machine& machine, Plan& plan);
void plan_broadcast(const CollectiveShape& shape, const Machine& machine, Plan& plan);
void plan_all_to_all(const CollectiveShape& shape, const Machine& machine,
                     const AllToAllChoice& way, Plan& plan);
void plan_send(const CollectiveShape& shape, const Machine& machine, Plan& plan);
/// Up and down the tree with no bytes.
void plan_barrier(const CollectiveShape& shape, const Machine& machine, Plan& plan);

}  // namespace moetwin
