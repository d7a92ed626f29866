#pragma once
// Verdicts while a run is under way: said when they begin to hold, and `--stop-on`.

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "analysis/stability/monitor.h"
#include "core/record/report.h"
#include "core/record/step_row.h"

namespace moetwin {

/// "oscillating: layer 1, from step 1004, period 6 steps; EVIDENCE".
std::string verdict_line(const Verdict& verdict);

class LiveVerdicts {
 public:
  /// `stop_on`: kinds of stoppable_verdicts() that end the run; may be empty.
  LiveVerdicts(const StabilityOptions& options, std::vector<std::string> stop_on);

  /// One step after the other, from one thread at a time. Returns a line for each verdict that
  /// begins to hold.
  std::vector<std::string> add(const StepRow& row);
  /// Whether the run ends after `step`. It asks for what the steps before showed: all ranks have
  /// handed those in, so that each gets the same answer. From any thread.
  bool ends_after(int64_t step) const { return found_ < step; }

  /// The verdict that ended the run, or else would have; null: none. `report`: that of the run,
  /// whose verdicts count too. Call it at the end.
  const Verdict* ended_by(const Report& report);

 private:
  bool wanted(const std::string& kind) const;
  StabilityMonitor monitor_;
  std::vector<std::string> stop_on_;
  std::atomic<int64_t> found_{std::numeric_limits<int64_t>::max()};  ///< step of the row
  Verdict verdict_;
};

}  // namespace moetwin
