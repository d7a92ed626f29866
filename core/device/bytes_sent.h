#pragma once
// What a collective makes a rank send, alike on every machine: the figure of op lists, which must
// not depend on the algorithm that carries it or on where ranks lie.

#include <cstdint>

#include "core/device/communicator.h"

namespace moetwin {

/// Bytes that member `rank` of `size` sends to the others: as in a ring for all_reduce (2 (n-1)/n
/// of the tensor), all_gather and reduce_scatter ((n-1)/n of the longer one), rounded down; a chain
/// from the root for a broadcast; 0 for recv and barrier.
int64_t bytes_sent(const CollectiveCall& call, int64_t rank, int64_t size);

}  // namespace moetwin
