#pragma once
// Which ranks run the same program, call for call: without numerics the copies of the experts and
// of what surrounds them differ in nothing that the core looks at, but for the first, which owns
// what copies have in common. One of them can stand for the others' programs; their time is their
// own.

#include <cstdint>
#include <vector>

#include "core/scenario/scenario.h"
#include "core/topology/grid.h"

namespace moetwin {

class AlikeRanks {
 public:
  AlikeRanks(const Scenario& scenario, const Grid& grid);

  /// Some rank has another's program.
  bool any() const { return copies_ > 2; }
  /// The lowest rank with this rank's program.
  int64_t leader(int64_t rank) const;
  /// All of them, ascending.
  std::vector<int64_t> leaders() const;
  /// How many ranks have the program of this leader, itself included.
  int64_t sharing(int64_t leader) const;

 private:
  int64_t stages_ = 1;
  int64_t stage_ = 1;   ///< ranks of a pipeline stage
  int64_t copy_ = 1;    ///< ranks of a copy: whole TP, CP and EP groups
  int64_t copies_ = 1;  ///< in a stage; 1 where they may differ
};

/// The group of `rank` where the leader of its program has `group`.
Group counterpart(const Grid& grid, int64_t leader, const Group& group, int64_t rank);

}  // namespace moetwin
