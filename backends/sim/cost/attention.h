#pragma once
// Seconds of a fused attention kernel: it goes over keys for each block of queries, so short
// sequences and the masked part of the diagonal's blocks cost more than their FLOP.

#include "backends/sim/cluster/profile.h"

namespace moetwin {

/// FLOP / (peak * efficiency) * (1 + (ramp + diagonal, where causal) / keys), `keys` being those
/// that a query sees on average; times the share of the multiprocessors that have no block of 128
/// queries of a head. `efficiency` goes with the logarithm of the head dimension through the two
/// that are known, and is that of 128 above.
Seconds attention_cost(const KernelWork& work, const AttentionRate& rate, const GpuProfile& gpu,
                       double clock = 1);

}  // namespace moetwin
