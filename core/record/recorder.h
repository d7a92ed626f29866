#pragma once
// The record of a run: fed by every rank, it makes the numbers of a step when all ranks of that
// step are in and writes the run directory (semantics 9).

#include <json/value.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/device/backend.h"
#include "core/record/op_table.h"
#include "core/record/report_builder.h"
#include "core/record/run_sink.h"
#include "core/scenario/scenario.h"
#include "core/topology/grid.h"

namespace moetwin {

/// What the record must be told about a run.
struct RunInfo {
  std::string directory;    ///< the run directory, made if absent; empty: nothing is written
  std::string backend;      ///< "sim" | "cuda"
  std::string cluster;      ///< Cluster::description()
  DeviceProperties device;  ///< of any rank: name, memory_bytes, peak_flop_per_second, peak_source
  double hardware_flop_per_step = 0;  ///< all ranks, with recompute; 0: by arithmetic
  Json::Value settings;               ///< of the scenario and the machine, as they ended up
  std::vector<std::string> notes;     ///< for the summary: substituted routers, warnings
  /// Called once per step, in step order, when the step is complete; under the record's lock.
  std::function<void(const StepRow&)> on_step;
};

/// What only the end of a run knows.
struct RunEnd {
  double wall_seconds = 0;
  Json::Value environment;
  std::string error;  ///< what ended the run early; empty: nothing did
  /// Adds verdicts and notes from the run's other files, which have their names by then; null:
  /// none.
  std::function<void(Report&)> judge;
};

/// Shared by all ranks of a process. Files stay under temporary names until finish().
class Recorder : public RunSink {
 public:
  /// Makes the directory and opens its files. Throws Error(configuration) naming the path when it
  /// cannot be written.
  Recorder(const Scenario& scenario, const Grid& grid, RunInfo info);
  /// Without finish(), takes away what it wrote.
  ~Recorder() override;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  bool wants_detail(int64_t step) const override;
  void add(RankStep step) override;
  void add_validation(int64_t rank, int64_t step, double ce_sum, int64_t tokens) override;
  /// Validation loss after the step, once all ranks are in; NaN before.
  double validation_loss(int64_t step) const;

  /// The lowest validation loss of this run up to a step, and where; {NaN, 0}: none.
  std::pair<double, int64_t> best_validation(int64_t up_to_step) const;

  /// Number of the last step that all ranks have completed.
  int64_t steps_done() const;
  /// Gives every file its name, also when the run ended early; report.json appears last. What only
  /// some ranks completed is left out. Called once, when no rank adds any more.
  Report finish(const RunEnd& end);

 private:
  struct RankPart;
  struct PendingStep;
  struct Files;
  struct Validation;
  StepRow complete(PendingStep& pending);
  void write(const PendingStep& pending, const StepRow& row);

  const Scenario scenario_;
  const Grid grid_;
  const RunInfo info_;
  mutable std::mutex mutex_;
  std::map<int64_t, std::unique_ptr<PendingStep>> pending_;
  std::map<int64_t, Validation> validations_;
  std::unique_ptr<Files> files_;
  bool made_directory_ = false;
  double last_end_;
  ReportBuilder builder_;
  OpTableBuilder ops_;
};

}  // namespace moetwin
