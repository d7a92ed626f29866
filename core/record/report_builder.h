#pragma once
// Gathers a report while steps pass, keeping little per step.

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "core/record/report.h"
#include "core/scenario/scenario.h"

namespace moetwin {

/// The report's routing figures are means over this many last steps.
inline constexpr int64_t kRoutingWindow = 20;

class ReportBuilder {
 public:
  /// `memory_capacity_bytes` of a rank, 0: unknown.
  ReportBuilder(const Scenario& scenario, const Grid& grid, int64_t memory_capacity_bytes);

  /// Steps in order, each with its parts and memory by rank.
  void add(const StepRow& row, std::vector<StepParts> parts, const std::vector<MemoryUse>& memory);
  void set_validation(double loss) { validation_last_ = loss; }
  /// Number of the last step, 0 before the first.
  int64_t last_step() const { return last_step_; }

  /// Everything that follows from the steps. `peak_flop_per_second` of one GPU, 0: unknown;
  /// `hardware_flop_per_step` of all ranks with recompute, 0: by arithmetic.
  Report build(double peak_flop_per_second, double hardware_flop_per_step) const;

 private:
  struct Measured {
    int64_t step;
    double seconds;
    StepParts parts;
    std::vector<StepParts> by_rank;
  };
  void add_memory(const StepRow& row, const std::vector<MemoryUse>& memory);
  void build_throughput(Report& report, double peak, double hardware_flop) const;
  void build_memory(Report& report) const;
  void build_routing(Report& report) const;

  const Scenario scenario_;
  const Grid grid_;
  int64_t capacity_;
  int64_t steps_ = 0, last_step_ = 0;
  double first_loss_, last_loss_, validation_last_;
  double device_seconds_ = 0;
  /// Steps after warm-up, and those before, which stand in while there are no others.
  struct Sums {
    int64_t steps = 0, host_syncs = 0;
    double tokens = 0, seconds = 0;
    std::map<std::string, SentBytes> traffic, by_purpose;
    CollectiveTable collectives;
    std::deque<Measured> kept;
  } warm_, steady_;
  std::vector<MemoryUse> peaks_;        ///< by rank: the use at its highest peak
  std::vector<int64_t> exceeded_step_;  ///< by rank: first step above the capacity, 0: none
  std::deque<std::vector<LayerRow>> window_;
};

}  // namespace moetwin
