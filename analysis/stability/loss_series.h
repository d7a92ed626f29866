#pragma once
// The loss of a run: spikes, and whether it diverges.

#include <cstdint>
#include <string>
#include <vector>

namespace moetwin {

struct LossSeries {
  std::vector<int64_t> steps;
  std::vector<double> loss;       ///< NaN: unknown or not finite
  std::vector<double> grad_norm;  ///< NaN: unknown
};

struct LossMetrics {
  bool known = false;
  double first = 0, lowest = 0, last = 0;  ///< medians of up to 25 steps; lowest of all such
  std::vector<int64_t> spikes;  ///< steps whose loss stands out of its 51 neighbours by more than 7
                                ///< scaled median deviations
  double scatter = 0;           ///< deviation from the 51-step mean over the last 40% of steps
  int64_t non_finite_step = -1;
  bool diverging = false;
  int64_t onset_step = -1;  ///< of the divergence: where it left its lowest level
  double ratio = 1;         ///< last / lowest
  std::string evidence;
};

/// Diverging: a non-finite loss after finite ones; or a loss that ends above where it began and
/// rises over the last fifth of the run; or one that ends at least 1.5 times and 0.5 nats above its
/// lowest level, still rising.
LossMetrics loss_metrics(const LossSeries& series);

}  // namespace moetwin
