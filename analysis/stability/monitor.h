#pragma once
// The stability analysis during a run: fed step by step, it says when a verdict begins to hold.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analysis/result/routing_series.h"
#include "analysis/stability/stability.h"

namespace moetwin {

/// A layer's part of one step. Views that need only live during the call.
struct LayerObservation {
  int64_t layer = 0;
  const std::vector<int64_t>* counts = nullptr;  ///< [E] assignments before dropping; null: none
  int64_t kept = -1;                             ///< after dropping; -1: all
  // Of the probe batch; `probe_shares` null: no probe in this step.
  const std::vector<double>* probe_shares = nullptr;  ///< [E], sum 1
  double churn = 0;                                   ///< NaN: the first probe
};

/// Keeps the last 2 x options.window rows of each layer and judges them every
/// options.check_every steps, after options.skip_steps, with the rules of analyse_stability. A
/// verdict begins to hold when it came options.hold checks running, and a movement besides when the
/// sliding checks of its onset held as often; a loss that is not finite at once. Not thread-safe.
class StabilityMonitor {
 public:
  explicit StabilityMonitor(const StabilityOptions& options) : options_(options) {}

  /// Steps in ascending order. Returns the findings that hold now and did not at the last check
  /// (by kind and layer); mostly none.
  std::vector<Finding> add(int64_t step, double loss, const std::vector<LayerObservation>& layers);
  /// What holds as of the last check, but "stable".
  const std::vector<Finding>& holding() const { return holding_; }
  /// The first finding of this kind that has begun to hold in the run; null: none yet. What
  /// `--stop-on` asks.
  const Finding* first(const std::string& kind) const;

 private:
  void trim(LayerSeries& layer) const;
  bool due(int64_t step) const;
  StabilityOptions options_;
  RoutingSeries routing_;
  LossSeries loss_;
  int64_t first_step_ = -1, last_check_ = -1;
  std::vector<Finding> holding_;
  std::map<std::pair<std::string, int64_t>, int64_t> running_;  ///< checks in a row, by kind, layer
  std::map<std::string, Finding> seen_;
};

/// The kinds of verdict that --stop-on may name.
std::vector<std::string> stoppable_verdicts();

}  // namespace moetwin
