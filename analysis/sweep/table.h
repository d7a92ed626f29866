#pragma once
// The results of a sweep side by side.

#include <string>
#include <vector>

#include "analysis/sweep/sweep.h"

namespace moetwin {

/// A figure of a run that a sweep compares.
struct SweepFigure {
  const char* name;  ///< column of sweep.csv; what --rank-by takes
  const char* title;
  const char* unit;  ///< s | bytes | tokens/s | share | nats | h | (empty)
  int better;        ///< 1: more is better, -1: less, 0: neither
};

/// In the order of the columns.
std::vector<SweepFigure> sweep_figures();
/// Throws Error(configuration) with the legal names.
SweepFigure sweep_figure(const std::string& name);

/// The figure of a point; NaN: unknown.
double sweep_value(const SweepPoint& point, const SweepFigure& figure);
/// As a table shows it: "1.61 ms", "12.3 GiB", "4.2 %"; "-": unknown.
std::string sweep_text(double value, const SweepFigure& figure);
/// The kinds of a point's verdicts: "oscillating, imbalanced".
std::string sweep_verdicts(const SweepPoint& point);

/// Points that are done, best first by the figure (less first where neither is better); equal ones
/// keep their order, unknown ones are left out.
std::vector<const SweepPoint*> ranked(const std::vector<SweepPoint>& points,
                                      const SweepFigure& figure);

/// One row per point: point, a column per axis, state, exit_code, every figure, verdicts, message,
/// directory. Unknown figures are empty.
std::string sweep_csv(const SweepPlan& plan, const std::vector<SweepPoint>& points);
/// The cells of a table for a terminal, header first: axes by their last words, the figures that
/// any point has of step, tokens/s, memory, all-to-all, loss, imbalance, dropped, and verdicts or
/// why not.
std::vector<std::vector<std::string>> sweep_rows(const SweepPlan& plan,
                                                 const std::vector<SweepPoint>& points);

/// sweep.html: the table, and a map of two keys coloured by a figure.
std::string sweep_page(const SweepPlan& plan, const std::vector<SweepPoint>& points,
                       const SweepFigure& figure);

}  // namespace moetwin
