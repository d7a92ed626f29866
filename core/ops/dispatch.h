#pragma once
// Moving tokens into expert order and back (semantics 5). An assignment is (token t, slot j),
// number t k + j. The tokens are cut into `chunks` equal ranges (the last may be shorter); chunk
// c's rows start at row first_token(c) * k of the permuted buffer [T k, H] and are sorted by
// expert, then by assignment number. Dropped assignments have position -1.

#include "core/device/op.h"

namespace moetwin {

struct PlanAttr {
  int64_t experts = 0, top_k = 1;
  int64_t capacity = -1;  ///< kept assignments per expert over the whole micro-batch; -1: dropless
  bool by_probability = false;  ///< which are kept: highest weight first (ties: lower number), or
                                ///< lowest assignment number first
  int64_t chunks = 1;
};
/// Tokens of a chunk: ceil(T / chunks) but for the last ones.
int64_t chunk_begin(int64_t tokens, int64_t chunks, int64_t chunk);

/// Stable sort by expert, capacity, and both index maps. ids i32 [T,k] (-1: not routed), weights
/// real [T,k]; position i32 [T k]: row of an assignment or -1; source i32 [T k]: assignment of a
/// row or -1; kept i64 [E * chunks + 1] (control): rows of expert e in chunk c at e * chunks + c;
/// the last entry is copied from counts[E] (the router's non-finite mark). counts i64 [E+1]
/// (control), the router's. With numerics off ids have no storage and kept follows from the counts
/// alone, just as if router_scripted had dealt them to the tokens.
OpCall dispatch_plan(const Tensor& ids, const Tensor& weights, const Tensor& counts,
                     const Tensor& position, const Tensor& source, const Tensor& kept,
                     PlanAttr attr);

struct RangeAttr {
  int64_t top_k = 1;
  int64_t first = 0, count = 0;
  /// The tensors hold a slice of the planned tokens, which begins at this token of the plan: token
  /// t below is token slice + t of the plan, rows count from slice * k on.
  int64_t slice = 0;
};
/// y[r] = x[source[r] / k - slice] for the rows r in [first, first + count) of the permuted order;
/// y [count,H] holds just those; rows without a source are zero. x [T,H], source i32 [T k].
OpCall permute(const Tensor& x, const Tensor& source, const Tensor& y, RangeAttr attr);
/// dx[t] = sum over slots j in order of dy[position[t,j] - (slice + first) k], for tokens [first,
/// first + count); dx [T,H] rows outside are untouched. dy holds the rows from row first * k on.
OpCall permute_backward(const Tensor& dy, const Tensor& position, const Tensor& dx, RangeAttr attr);
/// out[t] = sum over slots j in order of weights[t,j] * y[position[t,j] - (slice + first) k] for
/// tokens
/// [first, first + count); y has the rows from first * k on.
OpCall combine(const Tensor& y, const Tensor& weights, const Tensor& position, const Tensor& out,
               RangeAttr attr);
/// d_y[row] = weights[t,j] * d_out[t]; d_weights[t,j] = d_out[t] . y[row] (0 when dropped).
OpCall combine_backward(const Tensor& d_out, const Tensor& y, const Tensor& weights,
                        const Tensor& position, const Tensor& d_y, const Tensor& d_weights,
                        RangeAttr attr);

/// Copies row ranges: `segments` is a list of (source row, destination row, rows) triples. x [N,H],
/// y [M,H].
OpCall regroup(const Tensor& x, const Tensor& y, HostSizes segments);

}  // namespace moetwin
