#pragma once
// Scripted routers: counts from a workload (uniform, W0 to W11, trace), not from what tokens say.
// No parameters, no learning; the same counts on every machine.

#include "core/moe/router.h"

namespace moetwin {

/// Counts for one layer and source rank, micro-batch by micro-batch.
class Script {
 public:
  /// `source`: uniform | W0 .. W11 | trace.
  Script(const RouterSetup& setup, const std::string& source);
  /// i64 [E] (control) with the counts of this micro-batch on the device.
  Tensor wanted(Context& context, const MicroBatch& batch) const;

 private:
  RoutingConfig routing_;
  std::shared_ptr<const RoutingTrace> trace_;
  int64_t layer_, source_rank_, source_ranks_, experts_, columns_, top_k_;
};

class ScriptedRouter : public Router {
 public:
  ScriptedRouter(const RouterSetup& setup, Script script);
  Routing forward(Context& context, const MicroBatch& batch, const Tensor& x,
                  const Tensor& counts) override;
  void backward(Context&, const MicroBatch&, const Routing&, const Tensor&,
                const Tensor&) override {}

 private:
  Script script_;
  int64_t experts_, top_k_, moe_layer_;
  BalanceState& balance_;
};

}  // namespace moetwin
