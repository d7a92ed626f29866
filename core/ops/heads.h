#pragma once
// The shape rule of packed projections, shared by the ops on heads.

#include "core/ops/norm.h"
#include "core/ops/row.h"

namespace moetwin {

struct HeadSizes {
  int64_t query = 0, key = 0, dim = 0, value = 0;  ///< heads, heads, elements, of values
  int64_t sequence = 0;                            ///< tokens
  int64_t width() const { return (query + key) * dim + key * value; }
};

inline HeadSizes sizes_of(const HeadsAttr& a) {
  return {a.query_heads, a.kv_heads, a.head_dim, a.value_width(), a.sequence_length};
}

/// Checks heads and the packed operand `qkv` [T, (nq + nkv) D + nkv Dv]; returns T.
inline int64_t check_heads(const Check& check, int qkv, const HeadSizes& h) {
  check.that(h.query >= 1 && h.key >= 1 && h.dim >= 1 && h.value >= 1,
             "heads and their size are positive");
  check.that(h.query % h.key == 0, "query heads are a multiple of key heads");
  check.rank(qkv, 2);
  const int64_t tokens = check.extent(qkv, 0);
  check.shape(qkv, {tokens, h.width()});
  check.real(qkv);
  check.that(h.sequence >= 1 && tokens % h.sequence == 0, "tokens are whole sequences");
  return tokens;
}

}  // namespace moetwin
