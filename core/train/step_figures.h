#pragma once
// The figures of a step on one rank, in one tensor so that one read brings them to the host: sums
// of the loss, the gradient norm, losses of the MoE layers; and the counts of tokens that the host
// knows.

#include <map>
#include <vector>

#include "core/moe/balance.h"
#include "core/record/rank_step.h"
#include "core/train/model.h"

namespace moetwin {

class StepFigures {
 public:
  /// `moe_layers`: model numbers of this rank's MoE layers. `counts`: whether it tells of them: the
  /// ranks of a TP group route the same tokens, and the lowest tells. `received`: whether it tells
  /// of RankStep::received.
  StepFigures(Context& context, std::vector<int64_t> moe_layers, int64_t experts, bool counts,
              bool received);

  const Tensor& all() const { return figures_; }
  /// real [2]: {sum of losses, valid tokens} of this rank's micro-batches.
  const Tensor& sums() const { return sums_; }
  /// real [2]: {sum of squares of gradients, valid tokens} over the world, once measured.
  const Tensor& totals() const { return totals_; }
  /// real [2]: {factor on gradients, norm before clipping}.
  const Tensor& factor() const { return factor_; }
  /// real [L (4 + E)]: four losses and the sums of scores of each MoE layer.
  const Tensor& balance() const { return balance_; }

  /// Forgets the step before.
  void begin_step(Context& context);
  /// What the forward of a chunk told the host.
  void add_counts(const ModelChunk& chunk, const ModelChunk::Saved& saved, int64_t tokens);
  /// Losses, counts and norm of the step; waits for them. With numerics none only the counts.
  /// Throws Error(non_finite) naming step and rank.
  void read(Context& context, RankStep& out);

 private:
  std::vector<int64_t> moe_layers_;
  int64_t experts_;
  bool counts_, tell_received_;
  Tensor figures_, sums_, totals_, factor_, balance_;
  std::vector<LayerStep> layers_;
  std::map<int64_t, int64_t> received_;
};

}  // namespace moetwin
