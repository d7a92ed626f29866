#pragma once
// One global gradient norm, clipping, and the update of every parameter this rank keeps (semantics
// 2).

#include <vector>

#include "core/device/communicator.h"
#include "core/parallel/flat_parameters.h"
#include "core/scenario/scenario.h"

namespace moetwin {

class Optimizer {
 public:
  /// `world`: over which the norm is summed; null with one rank. `nominal_tokens`: of the global
  /// batch.
  Optimizer(const TrainingConfig& config, std::vector<FlatGroup>& groups, Communicator* world,
            double nominal_tokens);

  /// totals real [2]: {scratch, valid tokens of this rank}; becomes {sum of squares, valid tokens}
  /// over the world. factor real [2] gets {factor on gradients, norm before clipping}, both of
  /// gradients without the loss scale.
  void measure(Context& context, const Tensor& totals, const Tensor& factor,
               double loss_scale) const;
  /// Updates from the reduced gradients times factor[0]; `updates`: how many there are with this.
  void update(Context& context, const Tensor& factor, int64_t step, int64_t updates) const;

  /// Rate of a parameter kind at a step.
  double learning_rate(ParameterKind kind, int64_t step) const;
  double weight_decay(const FlatSegment& segment) const;
  bool has_momentum() const { return config_.optimizer == "adamw"; }

 private:
  const ParameterKindConfig& of(ParameterKind kind) const;
  TrainingConfig config_;
  std::vector<FlatGroup>& groups_;
  Communicator* world_;
  double nominal_tokens_;
};

}  // namespace moetwin
