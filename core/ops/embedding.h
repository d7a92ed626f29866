#pragma once
// Token and learned position embedding. T tokens are whole sequences of S tokens: token t has
// position t % S. A table may be a part of the vocabulary: rows [first_row, first_row + V).

#include "core/device/op.h"

namespace moetwin {

struct EmbedAttr {
  int64_t sequence_length = 0;
  double offset = 0;
  int64_t first_row = 0;
  int64_t vocabulary = 0;  ///< legal ids are below it; 0: the table is all of it
};

/// out[t] = table[ids[t] - first_row], zero for ids of other parts, + positions[t % S] + offset.
/// ids i32 [T], table [V,H], positions [S,H] or absent, out [T,H].
OpCall embed(const Tensor& ids, const Tensor& table, const Tensor& positions, const Tensor& out,
             EmbedAttr attr);
/// d_table[ids[t] - first_row] += d_out[t] in ascending t, not for ids of other parts;
/// d_positions[t % S] += d_out[t].
OpCall embed_backward(const Tensor& ids, const Tensor& d_out, const Tensor& d_table,
                      const Tensor& d_positions, EmbedAttr attr);

}  // namespace moetwin
