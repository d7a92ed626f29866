#pragma once
// Token and learned position embedding. T tokens are whole sequences of S tokens: token t has
// position t % S.

#include "core/device/op.h"

namespace moetwin {

struct EmbedAttr {
  int64_t sequence_length = 0;
  double offset = 0;
};

/// out[t] = table[ids[t]] + positions[t % S] + offset. ids i32 [T], table [V,H], positions [S,H] or
/// absent, out [T,H].
OpCall embed(const Tensor& ids, const Tensor& table, const Tensor& positions, const Tensor& out,
             EmbedAttr attr);
/// d_table[ids[t]] += d_out[t] in ascending t; d_positions[t % S] += d_out[t].
OpCall embed_backward(const Tensor& ids, const Tensor& d_out, const Tensor& d_table,
                      const Tensor& d_positions, EmbedAttr attr);

}  // namespace moetwin
