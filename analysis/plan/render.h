#pragma once
// A plan in words and tables.

#include <json/value.h>

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/plan/search.h"

namespace moetwin {

/// What the search does not know of itself.
struct PlanContext {
  const Scenario* scenario = nullptr;
  std::string cluster;  ///< "16 GPUs, 2 nodes of 8 A100-SXM4-80GB (modelled)"
  PlanMachine machine;
  size_t shown = 5;   ///< rows of the ranking
  double tokens = 0;  ///< of the training; 0: steps x global batch x sequence
  /// Median absolute error of predicted step times, as `moetwin validate` found it; 0: unknown.
  double median_error = 0;
  std::string error_source;
};

/// "DP 2 x EP 8 x TP 1 x PP 1", and ETP where it is not TP.
std::string layout_text(const PlanLayout& layout);
/// The rest of a point: "ZeRO-1, micro-batch 4, recompute full".
std::string choices_text(const PlanPoint& point);

/// Where the time of the first goes differently from the second, largest difference first:
/// "all-to-all 1.2 ms less".
std::string difference_text(const PlanFigures& best, const PlanFigures& other);

/// Ranking, reasons, certainty, front and price.
std::string plan_text(const PlanContext& context, const PlanSearch& search);
/// Why nothing fits, by how much, and what comes closest.
std::string nothing_fits_text(const PlanContext& context, const PlanSearch& search);
/// The same for programs. Schema moetwin-plan/1.
Json::Value plan_json(const PlanContext& context, const PlanSearch& search);

/// The point as a scenario file that extends another; `figures` go into its first lines.
std::string winner_text(const PlanContext& context, const PlanResult& winner,
                        const std::string& extends);

}  // namespace moetwin
