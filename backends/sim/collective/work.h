#pragma once
// The closed form of a collective: steps of the longest path and bytes through the busiest ports,
// which depend on the algorithm and the group alone, and the seconds that they take with a
// protocol's figures on a machine's links.

#include "backends/sim/cluster/machine.h"
#include "backends/sim/collective/choice.h"
#include "core/base/units.h"

namespace moetwin {

struct CollectiveShape;

struct Work {
  double nvlink_steps = 0, nic_steps = 0;  ///< one after the other on the longest path
  double nvlink_peers = 0, nic_peers = 0;  ///< of a member, beyond its first
  Seconds own;                ///< copy of what a member keeps, by the kernel that sends the rest
  Bytes piece;                ///< passed on whole at each step of a ring
  bool ring = false;          ///< bytes pass while the pieces travel
  Bytes nvlink, nic, fabric;  ///< through the busiest port of each kind; fabric: as of its
                              ///< first link
  Seconds message;            ///< of the largest message, however idle the ports are
  Bytes nvlink_before;        ///< of a first stage, whose bytes pass alone
};

/// Sum of the path's steps (a ring's with their pieces) and the copy of the own part, without bytes
/// otherwise.
Seconds path_of(const Work& work, const ProtocolFigures& figures, const Machine& machine);
/// The busiest port's time.
Seconds bytes_of(const Work& work, const ProtocolFigures& figures, const Machine& machine);
/// start + path + bytes; of a ring start + max(path, bytes + one step).
Seconds time_of(const Work& work, const ProtocolFigures& figures, const Machine& machine);

/// Ring (Patarasuk and Yuan 2009) of n members: all_reduce 2(n-1) steps of bytes/n, all_gather and
/// reduce_scatter n-1 steps. Over nodes as many rings as the node with fewest members has, each
/// with its own NIC.
Work ring_work(const CollectiveShape& shape, const Machine& machine);
/// Double binary tree (Sanders et al. 2009) over nodes with a chain inside each: 2 ceil(log2 nodes)
/// steps between nodes, 2 (members on a node - 1) inside.
Work tree_work(const CollectiveShape& shape, const Machine& machine);
/// Each GPU of a node has the switch add up 1/members of the bytes and hand the result to all:
/// bytes (1 + 1/members) in and out of every GPU; between nodes a double binary tree of each part.
Work nvls_work(const CollectiveShape& shape, const Machine& machine);
/// Chain from the root: n-1 steps, the bytes once through every port.
Work broadcast_work(const CollectiveShape& shape, const Machine& machine);
/// One step, every further peer of the member with most, the largest own part read and written in
/// the GPU's memory, the bytes of every pair.
/// Of a hierarchical one the bytes inside nodes are a first stage of their own.
Work all_to_all_work(const CollectiveShape& shape, const Machine& machine,
                     const AllToAllChoice& way);
Work send_work(const CollectiveShape& shape, const Machine& machine);

}  // namespace moetwin
