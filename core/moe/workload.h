#pragma once
// Scripted workloads: how many assignments each expert gets from each source rank, without any
// token having a say. Exact and deterministic; the same on every machine.

#include <cstdint>
#include <vector>

#include "core/moe/routing_trace.h"
#include "core/scenario/scenario.h"

namespace moetwin {

/// Assignments to each expert [E] of one micro-batch of `tokens` tokens on one source rank (index
/// `source` of `sources`, the dense-DP coordinate). They sum to top_k * tokens (W4: to top_k times
/// the source's share of tokens) and none is above `tokens`. Experts lie in `columns` columns of E
/// / columns consecutive ones, as over EP ranks. Steps count from 1; p = (step - 1) / period_steps.
///   uniform, W0  k T / E each; what is left over goes round the experts from source to source, so
///                that sums over sources differ by at most 1
///   W1  `hot_fraction` on `hot_experts` consecutive experts, from a seeded place per layer on
///   W2  `hot_fraction` on the experts of column hot_rank % columns
///   W3  as W1, but the hot experts lie in different columns as far as there are any
///   W4  balanced over experts; source r has tokens * (1 - (1 - 1 / ragged_ratio) r / (sources -
///   1)) W5  nothing on the last `zero_experts` experts, the rest balanced W6  as W1, from expert
///   (p * hot_experts) % E on: the hot set moves on every period W7  as W1 in the first
///   `burst_steps` steps of every period, balanced otherwise W8  log-normal: weights exp(sigma
///   z_i), z_i seeded per layer, sigma such that max / mean - 1 is
///       `max_violation`
///   W9  expert i has k T / E * (1 + s_i * amplitude * cos(2 pi (step - 1) / period_steps)), s_i =
///   +1
///       for even i, -1 for odd i (0 for the last of an odd number)
///   W10, trace, proxy  the shares of `trace` in step (step - 1) % (its steps), scaled to k T
///   W11 all choices of `hot_fraction` of the tokens in column hot_rank % columns, those of the
///       others over all experts
/// Hot sets share evenly, and so does the rest. Where a share asks for more than `tokens`
/// assignments to one expert, the excess goes to the others in proportion. Throws
/// Error(configuration) when a workload cannot be had with these sizes.
std::vector<int64_t> scripted_counts(const RoutingConfig& routing, uint64_t seed, int64_t step,
                                     int64_t layer, int64_t source, int64_t sources, int64_t tokens,
                                     int64_t top_k, int64_t experts, int64_t columns,
                                     const RoutingTrace* trace = nullptr);

/// Tokens that a source rank routes: `tokens` but for W4.
int64_t scripted_tokens(const RoutingConfig& routing, int64_t source, int64_t sources,
                        int64_t tokens);

/// Integers in proportion to `weights` (none negative) that sum to `total`, none above `cap`: what
/// exceeds the cap goes to the others in proportion (evenly when all their weights are zero), and
/// fractions are given out by largest remainder, ties in ascending order from index `first_tie` on.
/// total <= cap * size.
std::vector<int64_t> apportion(const std::vector<double>& weights, int64_t total, int64_t cap,
                               int64_t first_tie = 0);

}  // namespace moetwin
