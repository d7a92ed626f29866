#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/validate/ranking.h"
#include "analysis/validate/validate.h"
#include "core/base/units.h"

namespace moetwin {
namespace {

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f}%", 100 * share) : "-";
}
std::string signed_percent(double share) {
  return std::isfinite(share) ? fmt::format("{:+.1f}%", 100 * share) : "-";
}

std::string value_text(double value, const std::string& unit) {
  if (unit == "s") return format_seconds(value);
  if (unit == "bytes") return format_bytes(value);
  return fmt::format("{:.4g} {}", value, unit);
}

void add_left_out(const KindResult& kind, std::string& text) {
  std::map<std::string, size_t> other, failed;
  for (const RowResult& row : kind.rows) {
    if (row.standing == RowStanding::other_hardware) ++other[row.reason];
    if (row.standing == RowStanding::failed) ++failed[row.reason];
  }
  const auto list = [&](const char* title, const std::map<std::string, size_t>& reasons) {
    if (reasons.empty()) return;
    std::vector<std::pair<std::string, size_t>> sorted(reasons.begin(), reasons.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    text += fmt::format("  {}\n", title);
    for (const auto& [reason, count] : sorted) text += fmt::format("  {:>6}  {}\n", count, reason);
  };
  list("Not expressible, by reason:", kind.score.not_expressible);
  list("Failed:", failed);
  list("Other hardware, counted neither way:", other);
}

void add_kind(const KindResult& kind, std::string& text) {
  const KindScore& s = kind.score;
  text += fmt::format("\n{} ({}.csv): {}\n", kind.name, kind.file_stem, kind.what);
  text += fmt::format("  {:<34}{:>6}{:>9}{:>9}{:>9}\n", "series", "rows", "median", "p95", "bias");
  for (const SeriesScore& one : s.series)
    text += fmt::format("  {:<34}{:>6}{:>9}{:>9}{:>9}\n", one.series, one.rows,
                        percent(one.median_abs_error), percent(one.p95_abs_error),
                        signed_percent(one.median_error));
  const auto worst = worst_rows(kind.rows, 10);
  if (!worst.empty()) text += "  Worst rows:\n";
  for (const RowResult* row : worst)
    text += fmt::format("  {:<34}{:>12}  measured{:>12}  predicted{:>9}  {}{}\n", row->id,
                        value_text(row->measured, row->unit), value_text(row->predicted, row->unit),
                        signed_percent(row->error()), row->reason,
                        row->caveat.empty() ? "" : " [" + row->caveat + "]");
  add_left_out(kind, text);
}

}  // namespace

std::string validation_text(const std::vector<KindResult>& kinds) {
  std::string text;
  for (const KindResult& kind : kinds) add_kind(kind, text);
  text +=
      "\nErrors are predicted / measured - 1, without sign but for bias. median: over series of "
      "each "
      "series' median.\n\n";
  text +=
      fmt::format("{:<12}{:>7}{:>8}{:>8}{:>9}{:>11}{:>9}{:>9}{:>9}{:>7}\n", "kind", "rows",
                  "scored", "failed", "median", "row median", "row mean", "p95", "bias", "other");
  std::vector<RowResult> all;
  const auto line = [&](const std::string& name, const KindScore& s) {
    text += fmt::format("{:<12}{:>7}{:>8}{:>8}{:>9}{:>11}{:>9}{:>9}{:>9}{:>7}\n", name, s.rows,
                        s.scored, s.failed, percent(s.median_abs_error),
                        percent(s.row_median_abs_error), percent(s.row_mean_abs_error),
                        percent(s.p95_abs_error), signed_percent(s.bias), s.other_hardware);
  };
  for (const KindResult& kind : kinds) {
    line(kind.name, kind.score);
    all.insert(all.end(), kind.rows.begin(), kind.rows.end());
  }
  if (kinds.size() > 1) line("overall", score(all));
  for (const KindResult& kind : kinds)
    if (const Ranking r = rank_pairs(kind.rows); r.pairs > 0)
      text += fmt::format(
          "{}: of {} pairs of layouts of one workload that differ by more than 10%, {} ({}) are "
          "predicted in the measured order\n",
          kind.name, r.pairs, r.right,
          percent(static_cast<double>(r.right) / static_cast<double>(r.pairs)));
  return text;
}

}  // namespace moetwin
