#pragma once
// How evenly a layer's assignments fall, over a window (semantics 8), and what of it is more than
// sampling.

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/result/routing_series.h"
#include "analysis/stability/thresholds.h"
#include "core/record/routing_metrics.h"

namespace moetwin {

struct LoadMetrics {
  int64_t layer = 0, experts = 0;
  int64_t first_step = -1, last_step = -1;  ///< of the window
  double assignments = 0;                   ///< a step, mean
  RoutingMetrics per_step;                  ///< mean over the window's steps; MaxVio is
                                            ///< imbalance_experts - 1
  RoutingMetrics mean_load;                 ///< of the loads summed over the window
  double dropped_share = 0;                 ///< NaN: unknown
  double source_ratio = 1;  ///< most to fewest assignments of a source rank, last step with rows
  // Of blocks of steps that are long enough for sampling to make a CV of at most a tenth.
  int64_t block_steps = 1;
  double block_cv = 0, block_max = 1;
  double burst_time = 0;      ///< share of blocks with options.burst_max times the mean load
  double usual_max = 1;       ///< median of max / mean over blocks
  std::vector<int64_t> dead;  ///< experts with less than 1% of the mean over the window
  std::vector<int64_t> hot;   ///< experts above 1.5 times the mean over the window
  double starved_share = 0;   ///< share of experts below a tenth of the mean
  // The last probes and the probe's window; NaN: unknown.
  double churn = 0, router_entropy = 0, logit_std = 0, logit_std_first = 0, harm = 0;
  double bias_flips = 0;  ///< share of bias updates that turn the direction of the one before
};

LoadMetrics load_metrics(const LayerSeries& layer, const StabilityOptions& options);

}  // namespace moetwin
