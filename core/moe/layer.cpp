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
                   double routed_weight, const TensorParallel& tp)
    : router_(std::move(router)),
      dispatcher_(std::move(dispatcher)),
      experts_(std::move(experts)),
      beside_(std::move(beside)),
      routed_weight_(routed_weight),
      tp_(tp) {}

Tensor MoeLayer::forward(Context& context, const MicroBatch& batch, const Tensor& x, Saved& saved) {
  const Tensor mine = tp_.sequence() ? x : tp_.slice(x);
  const Tensor all = beside_.empty() ? Tensor{} : tp_.enter(context, x);
  saved.x = x;
  saved.beside.resize(beside_.size());
  const bool again = saved.routing.ids.defined();
  Tensor counts;
  if (again) {
    router_->restore_input(context, batch, mine, saved.routing);
  } else {
    counts = dispatcher_->count_buffer(context);
    saved.routing = router_->forward(context, batch, mine, dispatcher_->router_counts(counts));
  }
  std::vector<Tensor> others(beside_.size());
  const auto run_beside = [&] {
    for (size_t i = 0; i < beside_.size(); ++i) {
      others[i] = tp_.sum_to_slice(context, beside_[i].ffn.forward(context, all, saved.beside[i]),
                                   "tensor parallel");
      saved.beside[i].x = {};  // found again from x
    }
  };
  Tensor y = dispatcher_->forward(context, batch, saved.routing, counts, mine, *experts_,
                                  run_beside, saved.dispatch);
  weigh(context, y, routed_weight_);
  for (size_t i = 0; i < beside_.size(); ++i) {
    ScaleAttr attr;
    attr.alpha = beside_[i].weight;
    context.launch(scaled_add(others[i], y, attr));
  }
  return tp_.sequence() ? y : tp_.gather(context, y, "tensor parallel");
}

void MoeLayer::forget(Saved& saved) {
  saved.x = {};
  saved.routing.input = {};
  saved.beside.clear();
  saved.dispatch.rebalanced.guests.reset();
  for (DispatchChunk& chunk : saved.dispatch.chunks) {
    chunk.expert_out = {};
    chunk.saved = {};
  }
}

Tensor MoeLayer::backward(Context& context, const MicroBatch& batch, const Tensor& dy,
                          Saved& saved) {
  const Tensor d_mine = tp_.sequence() ? dy : tp_.slice(dy);
  const Tensor d_all = beside_.empty() ? Tensor{} : tp_.enter(context, dy);
  const Tensor all = beside_.empty() ? Tensor{} : tp_.enter(context, saved.x);
  Tensor d_weights = context.memory.allocate(saved.routing.weights.shape, context.real(),
                                             MemoryClass::router, "router weight gradient");
  // Other slices' weights get their gradients on other ranks.
  if (tp_.size() > 1) context.launch(fill(d_weights, {}));
  Tensor d_routed = d_mine;
  if (routed_weight_ != 1) {
    d_routed = context.activation(d_mine.shape, "weighted gradient");
    ScaleAttr attr;
    attr.alpha = routed_weight_;
    context.launch(scale(d_mine, d_routed, attr));
  }
  std::vector<Tensor> others(beside_.size());
  const auto run_beside = [&] {
    for (size_t i = 0; i < beside_.size(); ++i) {
      Tensor d = d_all;
      if (beside_[i].weight != 1) {
        d = context.activation(d_all.shape, "weighted gradient");
        ScaleAttr attr;
        attr.alpha = beside_[i].weight;
        context.launch(scale(d_all, d, attr));
      }
      saved.beside[i].x = all;
      others[i] = tp_.sum_to_slice(context, beside_[i].ffn.backward(context, saved.beside[i], d),
                                   "tensor parallel");
    }
  };
  Tensor dx = dispatcher_->backward(context, saved.routing, d_routed, *experts_, run_beside,
                                    d_weights, saved.dispatch);
  for (const Tensor& other : others) context.launch(add(dx, other, dx));
  router_->backward(context, batch, saved.routing, d_weights, dx);
  // Who watches wants those of all tokens.
  saved.d_weights = batch.watch ? tp_.gather(context, tp_.slice(d_weights),
                                             "router weight gradients", MemoryClass::router)
                                : d_weights;
  return tp_.sequence() ? dx : tp_.gather(context, dx, "tensor parallel");
}

}  // namespace moetwin
