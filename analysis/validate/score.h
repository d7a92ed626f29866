#pragma once
// How far predictions are from what was published: of rows, series and kinds.

#include <map>
#include <string>
#include <vector>

namespace moetwin {

enum class RowStanding {
  scored,
  failed,           ///< expressed, but the run gave no figure
  not_expressible,  ///< the model has no words for it, or the row lacks an input
  other_hardware    ///< not of the kinds of machines in scope: counts neither way
};

/// One published row beside what the model says.
struct RowResult {
  std::string id, series;
  RowStanding standing = RowStanding::not_expressible;
  double measured = 0, predicted = 0;
  std::string unit;    ///< of both: "s", "bytes", ...
  std::string reason;  ///< why it is not scored; of a scored row: what the prediction is made of
  /// Rows with the same are one workload on the same machine, laid out differently; empty: none.
  std::string alternative_of;
  std::string layout;  ///< what differs between such rows
  std::string caveat;  ///< what the publication itself says of the row's worth
  /// predicted / measured - 1.
  double error() const { return predicted / measured - 1; }
};

struct SeriesScore {
  std::string series;
  size_t rows = 0;
  double median_abs_error = 0, p95_abs_error = 0, median_error = 0;
};

struct KindScore {
  size_t rows = 0;  ///< in scope: scored, failed and not expressible
  size_t scored = 0, failed = 0, other_hardware = 0;
  /// Median over series of each series' median, so that a long series does not decide.
  double median_abs_error = 0;
  double row_median_abs_error = 0, row_mean_abs_error = 0;
  double p95_abs_error = 0;  ///< over rows, nearest rank
  double bias = 0;           ///< median over series of each series' median error with sign
  std::vector<SeriesScore> series;
  std::map<std::string, size_t> not_expressible;  ///< reason -> rows
};

/// Mean of the two middle values; NaN of none.
double median_of(std::vector<double> values);
/// Nearest rank: the smallest value that at least `share` of the values do not exceed; NaN of none.
double percentile_of(std::vector<double> values, double share);

KindScore score(const std::vector<RowResult>& rows);

/// The scored rows with the largest errors without sign, worst first.
std::vector<const RowResult*> worst_rows(const std::vector<RowResult>& rows, size_t count);

}  // namespace moetwin
