#include "analysis/validate/score.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace moetwin {

double median_of(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

double percentile_of(std::vector<double> values, double share) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  return values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

KindScore score(const std::vector<RowResult>& rows) {
  KindScore kind;
  std::vector<std::string> order;
  std::map<std::string, std::vector<double>> by_series;
  std::vector<double> absolute;
  for (const RowResult& row : rows) {
    if (row.standing == RowStanding::other_hardware) {
      ++kind.other_hardware;
      continue;
    }
    ++kind.rows;
    if (row.standing == RowStanding::not_expressible) ++kind.not_expressible[row.reason];
    if (row.standing == RowStanding::failed) ++kind.failed;
    if (row.standing != RowStanding::scored) continue;
    ++kind.scored;
    if (!by_series.count(row.series)) order.push_back(row.series);
    by_series[row.series].push_back(row.error());
    absolute.push_back(std::abs(row.error()));
  }
  std::vector<double> medians, signed_medians;
  for (const std::string& name : order) {
    const std::vector<double>& errors = by_series[name];
    std::vector<double> sizes;
    for (const double e : errors) sizes.push_back(std::abs(e));
    kind.series.push_back(
        {name, errors.size(), median_of(sizes), percentile_of(sizes, 0.95), median_of(errors)});
    medians.push_back(kind.series.back().median_abs_error);
    signed_medians.push_back(kind.series.back().median_error);
  }
  kind.median_abs_error = median_of(medians);
  kind.bias = median_of(signed_medians);
  kind.row_median_abs_error = median_of(absolute);
  kind.row_mean_abs_error =
      std::accumulate(absolute.begin(), absolute.end(), 0.0) / static_cast<double>(absolute.size());
  kind.p95_abs_error = percentile_of(absolute, 0.95);
  return kind;
}

std::vector<const RowResult*> worst_rows(const std::vector<RowResult>& rows, size_t count) {
  std::vector<const RowResult*> scored;
  for (const RowResult& row : rows)
    if (row.standing == RowStanding::scored) scored.push_back(&row);
  std::stable_sort(scored.begin(), scored.end(), [](const RowResult* a, const RowResult* b) {
    return std::abs(a->error()) > std::abs(b->error());
  });
  scored.resize(std::min(count, scored.size()));
  return scored;
}

}  // namespace moetwin
