#pragma once
// A row of nccl.csv as a collective.

#include <string>

#include "analysis/validate/published.h"
#include "core/device/communicator.h"

namespace moetwin {

struct CollectiveRow {
  std::string reason;  ///< why it cannot be expressed; empty: it can
  bool other_hardware = false;
  double seconds = 0;  ///< measured
  CollectiveKind kind = CollectiveKind::all_reduce;
  bool to_next = false;  ///< all_to_all_v to the next member only
  /// As nccl-tests counts them: all_reduce, broadcast, send: of the tensor; all_gather,
  /// reduce_scatter: of the longer one; all-to-all: a member's send buffer.
  double bytes = 0;
  /// Of an exchange of tokens by kernels of their own (DeepEP): experts of a token, and of how many
  /// nodes at most; 0: it is none.
  int64_t copies = 0, most_nodes = 0;
  /// Bytes a rank copies afterwards: torch.distributed.all_gather hands its flat result out as a
  /// list of tensors.
  double copied_bytes = 0;
  std::string profile, algorithm = "auto", nccl_algo;
  int64_t ranks = 0, nodes = 1;
  bool hosts_share_nvlink = false;
};

/// Times are the out-of-place ones; where a row has none they follow from bus or algorithm
/// bandwidth by nccl-tests' definitions, or DeepEP's: its bandwidths count a token once for each
/// node (or GPU, in one node) that it goes to, the own one included. A peak without a size is taken
/// at 8 GiB. Throws UnreadableField.
CollectiveRow read_collective_row(const PublishedRow& row);

/// Which ranks of a machine the members are.
struct Placement {
  int64_t world = 0;
  Group group;
  std::string reason;  ///< why they do not fit
};
/// Equally many on each node, from its first GPU on.
Placement place_of(const CollectiveRow& row, int64_t gpus_per_node);

}  // namespace moetwin
