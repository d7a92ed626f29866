#pragma once
// The MoE layer: router, dispatcher and experts, each of which can be swapped alone; beside them a
// shared expert and, in seed 000's layer, a dense FFN. Under TP the ranks of a group decide alike
// where all their tokens go, and each exchanges its slice of them, so that no token travels twice.

#include <memory>
#include <vector>

#include "core/moe/dispatcher.h"
#include "core/moe/experts.h"
#include "core/moe/router.h"
#include "core/nn/ffn.h"

namespace moetwin {

class MoeLayer {
 public:
  struct Saved {
    Tensor x;
    Routing routing;
    DispatchSaved dispatch;
    std::vector<Ffn::Saved> beside;
    Tensor d_weights;  ///< real [T,k]: left by the backward for who watches
  };
  /// A dense network that runs on the same input; its output is added with this weight.
  struct Beside {
    Ffn ffn;
    double weight = 1;
  };

  MoeLayer(std::unique_ptr<Router> router, std::unique_ptr<Dispatcher> dispatcher,
           std::unique_ptr<Experts> experts, std::vector<Beside> beside, double routed_weight,
           const TensorParallel& tp = {});

  /// x [T,H] -> [T,H]; with sequence parallelism slices of it. After `forget` the same again from
  /// the cached routing: nothing is decided, counted or recorded anew, and the host need not wait
  /// for sizes.
  Tensor forward(Context& context, const MicroBatch& batch, const Tensor& x, Saved& saved);
  /// Drops all but the routing and the plan of the dispatch.
  static void forget(Saved& saved);
  Tensor backward(Context& context, const MicroBatch& batch, const Tensor& dy, Saved& saved);
  /// Gradients that the backward has left under way are added: to be called once some other work is
  /// launched.
  void settle(Context& context, Saved& saved) { dispatcher_->settle(context, saved.dispatch); }
  /// Null where experts stay and work at home.
  Rebalancer* rebalancer() const { return dispatcher_->rebalancer(); }
  Experts& experts() const { return *experts_; }

 private:
  std::unique_ptr<Router> router_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<Experts> experts_;
  std::vector<Beside> beside_;
  double routed_weight_;
  TensorParallel tp_;
};

}  // namespace moetwin
