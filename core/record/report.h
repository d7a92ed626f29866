#pragma once
// report.json and what the summary shows: one run in numbers (schema moetwin-report/1).

#include <json/value.h>

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "core/device/allocator.h"
#include "core/record/step_row.h"
#include "core/scenario/scenario.h"
#include "core/topology/grid.h"

namespace moetwin {

inline constexpr const char* kReportSchema = "moetwin-report/1";
/// The report's routing figures are means over this many last steps.
inline constexpr int64_t kRoutingWindow = 20;

struct RunInfo;
struct RunEnd;

/// Something a user should act on.
struct Verdict {
  std::string kind;  ///< "out_of_memory", ...
  int64_t layer = -1;
  int64_t onset_step = -1;  ///< -1: not of one step; so for the others
  double period_steps = -1, amplitude = -1, confidence = 1;
  std::string evidence, advice;
};

struct LayerReport {
  int64_t layer = 0;
  RoutingMetrics metrics;
  double aux = 0, z = 0, importance = 0, load_variance = 0;
  std::vector<double> mean_probability;  ///< empty: unknown
  std::vector<double> load_share;        ///< [E] n_i / sum n over the window
  double churn = 0;                      ///< NaN: unknown
};

struct Report {
  std::string scenario, backend, fidelity, cluster, device_name, peak_source;
  int64_t seed = 0, world_size = 0, steps_asked = 0, steps_done = 0;
  int64_t steps_measured = 0;  ///< in throughput, parts and traffic: without warm-up
  double wall_seconds = 0, simulated_seconds = 0;
  double first_loss = 0, last_loss = 0, validation_last = 0;  ///< NaN: unknown
  double tokens_per_second = 0, samples_per_second = 0, step_seconds_median = 0;
  double mfu = 0, hfu = 0, peak_flop_per_second = 0;  ///< mfu, hfu NaN: unknown
  int64_t median_step = 0;                            ///< whose parts are shown
  StepParts parts;                                    ///< of that step, mean over ranks
  std::vector<StepParts> parts_per_rank;
  std::vector<int64_t> peak_bytes_per_rank;
  int64_t memory_capacity_bytes = 0;
  int64_t fullest_rank = 0;
  std::array<int64_t, kMemoryClasses> classes_of_fullest{};  ///< at its peak
  /// Peak of expert-parallel rank i: the largest over its copies.
  std::vector<int64_t> peak_bytes_per_ep_rank;
  std::map<std::string, double> traffic_per_step, traffic_off_node_per_step;  ///< bytes, all ranks
  double host_syncs_per_step = 0;
  double aux_loss_factor = 0;
  std::vector<LayerReport> layers;
  std::vector<Verdict> verdicts;
  std::vector<std::string> notes;
  double price_per_gpu_hour = 0;
  std::string currency;
  Json::Value environment, settings;
};

Json::Value report_json(const Report& report);

/// Gathers a report while steps pass; keeps little per step.
class ReportBuilder {
 public:
  ReportBuilder(const Scenario& scenario, const Grid& grid);
  /// Steps in order, each with its parts by rank and the memory of each rank.
  void add(const StepRow& row, const std::vector<StepParts>& parts,
           const std::vector<MemoryUse>& memory);
  void add_validation(double loss) { validation_last_ = loss; }
  int64_t steps() const { return steps_; }
  Report build(const Scenario& scenario, const Grid& grid, const RunInfo& info,
               const RunEnd& end) const;

 private:
  struct Measured {
    int64_t step;
    double seconds;
  };
  int64_t warmup_, steps_ = 0;
  double validation_last_;
};

}  // namespace moetwin
