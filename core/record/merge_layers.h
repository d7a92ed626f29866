#pragma once
// MoE layers over all ranks from what each rank left behind.

#include <cstdint>
#include <map>
#include <vector>

#include "core/record/rank_step.h"
#include "core/record/step_row.h"
#include "core/topology/grid.h"

namespace moetwin {

/// Takes the ranks of one step in ascending order, so that sums always have the same bits.
class LayerMerge {
 public:
  explicit LayerMerge(const Grid& grid) : grid_(grid) {}
  void add(const RankStep& step);
  /// In ascending order of layer numbers, with metrics.
  std::vector<LayerRow> rows() const;

 private:
  struct Sums {
    LayerRow row;
    ProbeMerge probe;
    bool probabilities = true;
    /// Assignments to each expert column, by the first rank of the EP group: what its ranks get.
    std::map<int64_t, std::vector<int64_t>> columns;
    std::vector<int64_t> received;  ///< by rank, where ranks tell themselves
  };
  const Grid& grid_;
  std::map<int64_t, Sums> layers_;
};

}  // namespace moetwin
