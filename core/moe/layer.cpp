#include "core/moe/layer.h"

#include "core/ops/elementwise.h"

namespace moetwin {

namespace {
/// In place: t *= factor, nothing at 1.
void weigh(Context& context, const Tensor& t, double factor) {
  if (factor == 1) return;
  ScaleAttr attr;
  attr.alpha = factor;
  context.launch(scale(t, t, attr));
}
}  // namespace

MoeLayer::MoeLayer(std::unique_ptr<Router> router, std::unique_ptr<Dispatcher> dispatcher,
                   std::unique_ptr<Experts> experts, std::vector<Beside> beside,
                   double routed_weight)
    : router_(std::move(router)),
      dispatcher_(std::move(dispatcher)),
      experts_(std::move(experts)),
      beside_(std::move(beside)),
      routed_weight_(routed_weight) {}

Tensor MoeLayer::forward(Context& context, const MicroBatch& batch, const Tensor& x, Saved& saved) {
  saved.x = x;
  saved.beside.resize(beside_.size());
  const bool again = saved.routing.ids.defined();
  Tensor counts;
  if (again) {
    router_->restore_input(context, batch, x, saved.routing);
  } else {
    counts = dispatcher_->count_buffer(context);
    saved.routing = router_->forward(context, batch, x, dispatcher_->router_counts(counts));
  }
  std::vector<Tensor> others(beside_.size());
  const auto run_beside = [&] {
    for (size_t i = 0; i < beside_.size(); ++i)
      others[i] = beside_[i].ffn.forward(context, x, saved.beside[i]);
  };
  Tensor y = dispatcher_->forward(context, batch, saved.routing, counts, x, *experts_, run_beside,
                                  saved.dispatch);
  weigh(context, y, routed_weight_);
  for (size_t i = 0; i < beside_.size(); ++i) {
    ScaleAttr attr;
    attr.alpha = beside_[i].weight;
    context.launch(scaled_add(others[i], y, attr));
  }
  return y;
}

void MoeLayer::forget(Saved& saved) {
  saved.x = {};
  saved.routing.input = {};
  saved.beside.clear();
  for (DispatchChunk& chunk : saved.dispatch.chunks) {
    chunk.expert_out = {};
    chunk.saved = {};
  }
}

Tensor MoeLayer::backward(Context& context, const MicroBatch& batch, const Tensor& dy,
                          Saved& saved) {
  Tensor d_weights = context.memory.allocate(saved.routing.weights.shape, context.real(),
                                             MemoryClass::router, "router weight gradient");
  Tensor d_routed = dy;
  if (routed_weight_ != 1) {
    d_routed = context.activation(dy.shape, "weighted gradient");
    ScaleAttr attr;
    attr.alpha = routed_weight_;
    context.launch(scale(dy, d_routed, attr));
  }
  std::vector<Tensor> others(beside_.size());
  const auto run_beside = [&] {
    for (size_t i = 0; i < beside_.size(); ++i) {
      Tensor d = dy;
      if (beside_[i].weight != 1) {
        d = context.activation(dy.shape, "weighted gradient");
        ScaleAttr attr;
        attr.alpha = beside_[i].weight;
        context.launch(scale(dy, d, attr));
      }
      others[i] = beside_[i].ffn.backward(context, saved.beside[i], d);
    }
  };
  Tensor dx = dispatcher_->backward(context, saved.routing, d_routed, *experts_, run_beside,
                                    d_weights, saved.dispatch);
  for (const Tensor& other : others) context.launch(add(dx, other, dx));
  router_->backward(context, batch, saved.routing, d_weights, dx);
  saved.d_weights = d_weights;
  return dx;
}

}  // namespace moetwin
