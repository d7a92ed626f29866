#pragma once
// routing.csv: assignments per step, layer, rank and expert; core/moe/routing_trace.h reads it
// back.

#include <cstdint>
#include <string>
#include <vector>

#include "core/record/rank_step.h"
#include "core/record/step_row.h"

namespace moetwin {

/// Rows with a rank, at most, in one step; what has more gets them every n-th step only.
inline constexpr int64_t kRoutingRowsPerStep = 100000;

/// Which rows a step gets.
struct RoutingVolume {
  std::vector<int64_t> ranks;  ///< rows for these ranks in every step; empty: for all ranks, but
                               ///< only every n-th step when they are more than the limit
  bool rank_rows(int64_t step, int64_t rank, int64_t rows_of_all_ranks) const;
};

std::string routing_csv_header();
/// Totals of one layer (rank `all`), one row per expert.
std::string routing_csv_totals(int64_t step, const LayerRow& layer);
/// Counts of one source rank.
std::string routing_csv_rank(int64_t step, int64_t rank, const LayerStep& layer);

}  // namespace moetwin
