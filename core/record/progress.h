#pragma once
// The line that shows a run while it goes on.

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <limits>
#include <string>

#include "core/record/step_row.h"

namespace moetwin {

class Progress {
 public:
  /// `terminal`: one line that is written over, at most ten times a second; otherwise a line per
  /// step that is shown. `clock`: seconds since the start of the run on the wall.
  Progress(int64_t steps, std::ostream& out, bool terminal, std::function<double()> clock);
  void show(const StepRow& row);
  /// How much of the first step is done, as often as wanted: says how long all steps will take.
  /// Without a terminal, after ten seconds and whenever that time has doubled.
  void within_first(double share);
  /// A line of its own, above the live one.
  void say(const std::string& text);
  /// Ends the live line. Call it once, also when the run failed.
  void finish();

 private:
  std::string line(const StepRow& row, double now);
  /// Shows last_ in the place of what stands on the terminal's line.
  void write_over(double now);

  int64_t steps_;
  std::ostream& out_;
  bool terminal_;
  std::function<double()> clock_;
  int64_t first_step_ = 0;
  double first_time_ = 0;  ///< on the wall, when first_step_ was done
  double shown_at_ = -1;
  double next_within_ = 10;  ///< without a terminal: when within_first() speaks next
  double churn_ = std::numeric_limits<double>::quiet_NaN();  ///< newest known
  std::string last_;                                         ///< newest line, to end with
  bool live_ = false;
};

/// "12 s", "3 min 20 s", "2 h 5 min": two units at most.
std::string duration_text(double seconds);

}  // namespace moetwin
