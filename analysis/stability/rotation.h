#pragma once
// A hot set of experts that moves on through all of them, as against one that swaps back and forth.

#include <cstdint>
#include <vector>

#include "analysis/stability/movement.h"

namespace moetwin {

struct Rotation {
  bool found = false;
  int64_t moves = 0;           ///< times the hot set changed for another
  double dwell_rows = 0;       ///< mean rows between moves
  double excess = 0;           ///< mean of the hot set's load / the mean load - 1
  std::vector<int64_t> order;  ///< the lowest expert of each hot set, in order of first visit
};

/// Looks for at least three moves at even intervals between hot sets (experts nearer to the highest
/// load than to the mean) of which none is the return to the set just left, each followed by the
/// same set every time. `assignments` a row give what sampling alone makes of the highest load.
Rotation find_rotation(const Shares& shares, double assignments);

}  // namespace moetwin
