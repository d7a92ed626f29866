#pragma once
// The figures of a run that can be set side by side, each with the place it comes from.

#include <string>
#include <vector>

#include "analysis/result/run.h"

namespace moetwin {

struct Figure {
  std::string group;     ///< throughput | step parts | memory | traffic | routing | loss
  std::string name;      ///< "compute_seconds"
  std::string source;    ///< "steps.csv compute_seconds", "report.json memory.peak_bytes_per_rank"
  std::string unit;      ///< s | bytes | tokens/s | (empty)
  int better = 0;        ///< 1: more is better, -1: less, 0: neither
  bool learned = false;  ///< follows from what was learned, so another seed gives another value
  double value = 0;      ///< mean over the measured steps, or the one value; NaN: unknown
  std::vector<double> steps, series;  ///< of the measured steps; empty: one value only
};

/// In a fixed order; a figure that a run does not have is left out. Warm-up steps, as the report
/// counts them, are not measured.
std::vector<Figure> figures_of(const Run& run);

}  // namespace moetwin
