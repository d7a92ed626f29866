#pragma once
// Whether the model tells the better of two layouts: what users ask it for.

#include <vector>

#include "analysis/validate/score.h"

namespace moetwin {

struct Ranking {
  size_t pairs = 0;  ///< of scored rows of one `alternative_of` that differ by more than asked
  size_t right = 0;  ///< of these, predicted in the measured order
};

/// Pairs of different layouts whose measured values differ by more than `difference` of the
/// smaller.
Ranking rank_pairs(const std::vector<RowResult>& rows, double difference = 0.1);

}  // namespace moetwin
