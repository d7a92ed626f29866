#pragma once
// What each rank hands to the record at the end of a step.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/device/allocator.h"
#include "core/device/profile.h"
#include "core/record/probe.h"

namespace moetwin {

/// What one MoE layer left behind on one rank, summed over the step's micro-batches. Losses are raw
/// (before their factors) and weighted by each micro-batch's share of the valid tokens of the
/// global batch, so that their sum over ranks is the mean.
struct LayerStep {
  int64_t layer = 0;            ///< number in the whole model
  int64_t tokens = 0;           ///< that entered the router
  std::vector<int64_t> counts;  ///< [E] assignments of these tokens to each expert, before dropping
  std::vector<int64_t> kept;    ///< [E] after dropping; empty: nothing is dropped
  std::vector<double> probability;  ///< [E] sum over tokens of p_ti / sum_j p_tj; empty: unknown
  double aux = 0;                   ///< E sum_i f_i P_i (1.0 when balanced)
  double z = 0;                     ///< mean logsumexp(logits)^2
  double importance = 0;            ///< CV^2 of the summed scores
  double load_variance = 0;         ///< mean (n_i - mean n)^2
  std::optional<ProbePart> probe;   ///< where the step was probed
};

/// Losses and layers are summed over ranks as they come, so only one rank of those that saw the
/// same tokens fills them (tp = 0; ce_sum: of the last stage); the others leave them zero and
/// empty.
struct RankStep {
  int64_t rank = 0;
  int64_t step = 0;   ///< from 1
  double start = 0;   ///< seconds of the device clock: where this rank's last step ended, or later
                      ///< when something that is not training was between (validation, checkpoint)
  double end = 0;     ///< everything of the step waited for
  double ce_sum = 0;  ///< sum of cross-entropy over valid tokens, in nats
  int64_t valid_tokens = 0;  ///< 0 on every rank: the loss is unknown (numerics none)
  std::vector<LayerStep> layers;
  /// By MoE layer: rows that this rank's experts worked on. Of every rank, where the counts of a TP
  /// group's tokens do not tell (Grid::parts_tp_groups); else empty.
  std::map<int64_t, int64_t> received;
  Profile profile;   ///< take_profile since the last step's
  MemoryUse memory;  ///< peaks since the start of the run or of the step
  int64_t host_syncs = 0;
  // The same on every rank; those of the lowest rank are written.
  double grad_norm = 0;      ///< before clipping
  double learning_rate = 0;  ///< of the dense parameters
  double loss_scale = 1;
  bool skipped = false;  ///< the update was left out: gradients overflowed
};

}  // namespace moetwin
