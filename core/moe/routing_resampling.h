#pragma once
// A recorded routing for another number of tokens, ranks and layers: what the router wanted is
// kept, what was chance because the recorded batch was small is taken out and drawn anew for the
// batch it is to drive.
//
// A step's total shares p vary over steps because the router moves and because a batch is a sample.
// Counts of one source are taken as a multinomial draw whose variance is `dispersion` times as
// large, for the tokens of a sequence go together: it is Pearson's chi-squared of the sources
// against their total, over its degrees of freedom. So a total of N assignments has the noise
// variance dispersion p (1 - p) / N; of the variance seen over the 17 steps around, what is left is
// the router's, and a deviation from these steps' mean is kept by that share of it (Wiener's
// filter).

#include <cstdint>
#include <vector>

#include "core/base/philox.h"

namespace moetwin {

/// Counts of one step and layer: of each source, in any order, and of all.
struct RecordedStep {
  std::vector<std::vector<int64_t>>
      sources;               ///< [sources][E]; fewer than 2: nothing is known of their scatter
  std::vector<int64_t> all;  ///< [E]
};

/// Steps on each side of one whose mean and variance stand for those of its time.
inline constexpr int64_t kResamplingWindow = 8;

/// Chi-squared over degrees of freedom, pooled over steps and at least 1; 1 where no step has two
/// sources.
double dispersion(const std::vector<const RecordedStep*>& steps);

/// What the router wanted in each step: shares [step][E] that sum to 1. Steps without assignments
/// have equal shares.
std::vector<std::vector<double>> wanted_shares(const std::vector<const RecordedStep*>& steps,
                                               double dispersion);

/// Shares of one source with `assignments` of its own: the wanted ones and normal noise of their
/// sampling variance; never negative. `key` and `first` name the draws.
std::vector<double> sampled_shares(const std::vector<double>& wanted, double dispersion,
                                   int64_t assignments, const PhiloxKey& key, uint64_t first);

/// Which of `recorded` layers stands for MoE layer `index` of `count`: the one at the same relative
/// depth.
int64_t layer_at_depth(int64_t index, int64_t count, int64_t recorded);

}  // namespace moetwin
