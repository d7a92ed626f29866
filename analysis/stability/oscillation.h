#pragma once
// Whether a layer's routing keeps moving, since when, how far and with what period.

#include <cstdint>
#include <string>

#include "analysis/result/routing_series.h"
#include "analysis/stability/movement.h"
#include "analysis/stability/thresholds.h"

namespace moetwin {

struct Oscillation {
  bool enough = false;      ///< the series is long enough to judge
  bool from_probe = false;  ///< otherwise from training loads, which moving data also moves
  bool found = false, strong = false, ended = false;
  bool bursts = false;   ///< periodic, but most of the time at rest
  int64_t rows = 0;      ///< judged
  double churn = 0;      ///< mean, of the probe; NaN: unknown
  double amplitude = 0;  ///< beyond sampling where it is of training loads
  Periodicity periodicity;
  bool periodic = false;
  double period_steps = 0;  ///< 0: none
  double margin = 0;        ///< how far beyond the line, 1: on it
  int64_t onset_step = -1, end_step = -1;
  int64_t checks = 0;        ///< sliding checks that held in a row, of the stretch that was judged
  int64_t moved_until = -1;  ///< not found, but it moved until this step and settled
  Swap swap;
};

Oscillation find_oscillation(const LayerSeries& layer, const StabilityOptions& options);

/// Rows of `rows` that the verdicts look at: the last 40%, at least 128, at most options.window.
int64_t judged_rows(int64_t rows, const StabilityOptions& options);

}  // namespace moetwin
