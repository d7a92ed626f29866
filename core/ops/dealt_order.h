#pragma once
// In which order scripted routing deals assignments to tokens: neighbours go to tokens far apart,
// so that every stretch of tokens (a chunk of an exchange, a slice of a TP rank) gets its share of
// every expert, as with a real router, and not the first experts alone.

#include <cstdint>

#include "core/base/philox.h"  // MOETWIN_BOTH

namespace moetwin {

/// A permutation of T tokens: they stand in about sqrt(T) rows of about as many, and are dealt to
/// column by column.
struct DealtOrder {
  int64_t tokens = 0, rows = 1;

  static DealtOrder of(int64_t tokens) {
    DealtOrder order{tokens, 1};
    while ((order.rows + 1) * (order.rows + 1) <= tokens) ++order.rows;
    return order;
  }

  /// The token dealt to as number i, 0 <= i < T.
  MOETWIN_BOTH int64_t token(int64_t i) const { return begin(i % rows) + i / rows; }
  /// Its inverse.
  MOETWIN_BOTH int64_t number(int64_t token) const {
    const int64_t row = row_of(token);
    return (token - begin(row)) * rows + row;
  }
  /// How many of the first `n` numbers (n <= T) are of tokens below `end` (end <= T).
  MOETWIN_BOTH int64_t below(int64_t n, int64_t end) const {
    const int64_t row = end == tokens ? rows : row_of(end), rest = n % rows;
    const int64_t whole = row * (n / rows) + (row < rest ? row : rest);
    if (row == rows) return whole;
    const int64_t in_row = n / rows + (row < rest ? 1 : 0), column = end - begin(row);
    return whole + (column < in_row ? column : in_row);
  }

 private:
  /// The first token of a row: the first T % rows of them are longer by one.
  MOETWIN_BOTH int64_t begin(int64_t row) const {
    const int64_t longer = tokens % rows;
    return row * (tokens / rows) + (row < longer ? row : longer);
  }
  MOETWIN_BOTH int64_t row_of(int64_t token) const {
    const int64_t length = tokens / rows, longer = tokens % rows, split = longer * (length + 1);
    return token < split ? token / (length + 1) : longer + (token - split) / length;
  }
};

}  // namespace moetwin
