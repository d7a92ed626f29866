#pragma once
// The learned router: a linear layer, scores, top-k. With a script it computes the same and only
// the choice is another's: the stand-in for a learned router where there are no numbers to choose
// by.

#include <optional>

#include "core/moe/router.h"
#include "core/moe/scripted_router.h"
#include "core/ops/router.h"

namespace moetwin {

class LearnedRouter : public Router {
 public:
  LearnedRouter(ParameterSet& parameters, const RouterSetup& setup, std::optional<Script> script);
  Routing forward(Context& context, const MicroBatch& batch, const Tensor& x,
                  const Tensor& counts) override;
  void restore_input(Context& context, const MicroBatch& batch, const Tensor& x,
                     Routing& routing) override;
  void backward(Context& context, const MicroBatch& batch, const Routing& routing,
                const Tensor& d_weights, const Tensor& dx) override;

 private:
  /// What the router acts on in this micro-batch: its weights, or those it had
  /// routing.weight_delay_steps ago. Keeps the weights of the step in its first micro-batch.
  Tensor acting_weight(Context& context, const MicroBatch& batch) const;
  /// Of `tokens` tokens, this rank's slice of the batch.
  RouterInputAttr input_attr(Context& context, const MicroBatch& batch, int64_t tokens) const;
  RouterLossAttr loss_attr(const MicroBatch& batch, const Routing& routing) const;

  MoeLayerConfig moe_;
  RoutingConfig routing_;
  int64_t hidden_, layer_, moe_layer_;
  BalanceState& balance_;
  TensorParallel tp_;
  std::optional<Script> script_;
  Parameter* weight_ = nullptr;  ///< real [H,E]
  /// real [d+1,H,E]: the weights of step t in row t mod (d+1), kept in BalanceState::state(); not
  /// defined without delay.
  Tensor late_weights_;
};

}  // namespace moetwin
