#pragma once
// Routers: which experts a token goes to and with what weight (semantics 3).

#include <cstdint>
#include <memory>
#include <string>

#include "core/nn/context.h"
#include "core/nn/parameter.h"
#include "core/nn/tensor_parallel.h"
#include "core/scenario/scenario.h"

namespace moetwin {

/// What a router decided for one micro-batch, and what its backward needs. T tokens, k choices, E
/// experts. Under TP all ranks of a group decide the same for all T tokens, though each computes
/// the logits of its slice of N tokens alone.
struct Routing {
  Tensor ids;      ///< i32 [T,k], descending score; -1: not routed
  Tensor weights;  ///< real [T,k]
  Tensor probs;    ///< real [T,E]
  Tensor counts;   ///< i64 [E+1] (control): assignments per expert before dropping; the last is the
                   ///< non-finite mark
  Tensor input;    ///< the router's own copy of its input, real [N,H]; undefined where there is no
                   ///< product
  Tensor late_weight;    ///< real [H,E]: the weights the router acted on where they are older than
                         ///< the parameter, whose values may come and go between the passes
  Tensor logits;         ///< real [T,E], before noise
  Tensor global_counts;  ///< i64 [E] (control), only with aux_loss_scope global_batch
  double global_tokens = 0;  ///< tokens behind them
};

class Router {
 public:
  virtual ~Router() = default;
  /// x [N,H]. `counts` i64 [E+1] (control) is written and becomes routing.counts.
  virtual Routing forward(Context& context, const MicroBatch& batch, const Tensor& x,
                          const Tensor& counts) = 0;
  /// Makes `routing.input`, which recompute has dropped, again; the decision stands. A router
  /// without one has nothing to do.
  virtual void restore_input(Context&, const MicroBatch&, const Tensor&, Routing&) {}
  /// d_weights real [T,k]: gradient of the task loss. Adds to dx [N,H] and to the gradients of the
  /// router's parameters.
  virtual void backward(Context& context, const MicroBatch& batch, const Routing& routing,
                        const Tensor& d_weights, const Tensor& dx) = 0;
};

class BalanceState;
class RoutingTrace;

struct RouterSetup {
  const ModelConfig& model;
  const RoutingConfig& routing;
  std::string name;       ///< global name of the layer
  int64_t layer = 0;      ///< of the model
  int64_t moe_layer = 0;  ///< among the MoE layers of this rank
  int64_t block = 0;
  int64_t source_rank = 0, source_ranks = 1;  ///< for scripted counts: dense-DP coordinate and size
  int64_t expert_columns = 1;                 ///< EP columns over which experts are spread
  bool numerics = true;                       ///< training_config.numerics
  BalanceState& balance;
  std::shared_ptr<const RoutingTrace> trace;  ///< load_trace(scenario), one for all ranks
  TensorParallel tp{};
};

/// The router that routing.source (and routing.without_numerics) names.
std::unique_ptr<Router> make_router(ParameterSet& parameters, const RouterSetup& setup);

}  // namespace moetwin
