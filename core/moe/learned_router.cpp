#include "core/moe/learned_router.h"

#include <algorithm>

#include "core/moe/balance.h"
#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"

namespace moetwin {

LearnedRouter::LearnedRouter(ParameterSet& parameters, const RouterSetup& setup,
                             std::optional<Script> script)
    : moe_(setup.model.moe_layer_config),
      routing_(setup.routing),
      hidden_(setup.model.hidden_size),
      layer_(setup.layer),
      moe_layer_(setup.moe_layer),
      balance_(setup.balance),
      tp_(setup.tp),
      script_(std::move(script)) {
  Parameter w;
  w.name = setup.name + ".router.weight";
  w.kind = ParameterKind::router;
  w.block = setup.block;
  w.tensor = tp_.on_parts();
  w.shape = {hidden_, moe_.num_experts};
  w.global = w.local = {1, hidden_, moe_.num_experts};
  w.init_std = setup.model.init_std * routing_.init_scale;
  const std::string late = w.name + ".late";
  weight_ = &parameters.add(std::move(w));
  if (routing_.weight_delay_steps > 0)
    late_weights_ =
        balance_.add_state(late, {routing_.weight_delay_steps + 1, hidden_, moe_.num_experts});
}

Tensor LearnedRouter::acting_weight(Context& context, const MicroBatch& batch) const {
  if (!late_weights_.defined() || !batch.training) return weight_->value;
  const int64_t rows = routing_.weight_delay_steps + 1;
  const auto row = [&](int64_t step) {
    return late_weights_.slice(step % rows * weight_->elements(), weight_->shape);
  };
  if (batch.index == 0) context.launch(copy(weight_->value, row(batch.step)));
  return row(std::max<int64_t>(1, batch.step - routing_.weight_delay_steps));
}

RouterInputAttr LearnedRouter::input_attr(Context& context, const MicroBatch& batch,
                                          int64_t tokens) const {
  RouterInputAttr attr;
  attr.key = philox_key(context.seed, Purpose::jitter, static_cast<uint32_t>(layer_),
                        static_cast<uint32_t>(batch.step));
  attr.jitter = batch.training ? routing_.jitter_epsilon : 0;
  attr.first_token = batch.first_token() + tp_.rank() * tokens;
  return attr;
}

RouterLossAttr LearnedRouter::loss_attr(const MicroBatch& batch, const Routing& routing) const {
  const BalanceState::Factors factors = balance_.factors(batch);
  RouterLossAttr attr;
  attr.score = routing_.score_function == "sigmoid" ? Score::sigmoid : Score::softmax;
  attr.top_k = moe_.top_k;
  attr.rows_per_scope = moe_.aux_loss_scope == "sequence" ? batch.sequence_length : batch.tokens();
  attr.p_norm = routing_.normalize_weights;
  attr.weight_scale = routing_.weight_scale;
  attr.aux = factors.aux;
  attr.z = factors.z;
  attr.importance = factors.importance;
  attr.weight = batch.share;
  attr.global_tokens = routing.global_tokens;
  return attr;
}

void LearnedRouter::restore_input(Context& context, const MicroBatch& batch, const Tensor& x,
                                  Routing& routing) {
  const RouterInputAttr input = input_attr(context, batch, x.shape[0]);
  // Jitter must not reach the experts, so the router jitters a copy; without jitter and narrowing x
  // itself serves.
  if (input.jitter == 0 && x.dtype == context.real()) {
    routing.input = x;
    return;
  }
  routing.input =
      context.memory.allocate(x.shape, context.real(), MemoryClass::router, "router input");
  context.launch(router_input(x, routing.input, input));
}

Routing LearnedRouter::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                               const Tensor& counts) {
  const int64_t tokens = batch.tokens(), experts = moe_.num_experts, k = moe_.top_k;
  const auto make = [&](const Shape& shape, DType dtype, const char* name) {
    return context.memory.allocate(shape, dtype, MemoryClass::router, name);
  };
  Routing r;
  r.counts = counts;
  restore_input(context, batch, x, r);
  const Tensor weight = acting_weight(context, batch);
  if (late_weights_.defined()) r.late_weight = weight;
  const Tensor logits = make({x.shape[0], experts}, context.real(), "router logits");
  context.launch(gemm(r.input, weight, {}, logits, {}, {}));
  r.logits = tp_.gather(context, logits, "router logits", MemoryClass::router);
  r.probs = make({tokens, experts}, context.real(), "router scores");
  r.weights = make({tokens, k}, context.real(), "router weights");
  r.ids = make({tokens, k}, DType::i32, "expert ids");
  if (script_) {
    const Tensor wanted = script_->wanted(context, batch);
    ScriptedAttr attr;
    attr.top_k = k;
    context.launch(router_scripted(wanted, r.probs, r.weights, r.ids, counts, attr));
  } else {
    SelectAttr attr;
    attr.score = routing_.score_function == "sigmoid" ? Score::sigmoid : Score::softmax;
    if (batch.training && routing_.noise.scale > 0) {
      attr.noise = routing_.noise.kind == "gaussian" ? Noise::gaussian
                   : routing_.noise.kind == "gumbel" ? Noise::gumbel
                                                     : Noise::none;
      attr.noise_scale = routing_.noise.scale;
      attr.noise_key = philox_key(context.seed, Purpose::logit_noise, static_cast<uint32_t>(layer_),
                                  static_cast<uint32_t>(batch.step));
      attr.first_token = batch.first_token();
    }
    attr.top_k = k;
    attr.groups = routing_.groups;
    attr.kept_groups = routing_.kept_groups;
    attr.p_norm = routing_.normalize_weights;
    attr.weight_scale = routing_.weight_scale;
    context.launch(router_select(r.logits, balance_.bias(moe_layer_), r.probs, r.weights, r.ids,
                                 counts, attr));
  }
  balance_.record(context, moe_layer_, batch, counts);
  if (batch.training) {
    if (balance_.global_scope())
      r.global_counts = balance_.global_counts(context, moe_layer_, batch, r.global_tokens);
    context.launch(router_losses(r.logits, r.probs, r.ids, r.global_counts,
                                 balance_.losses(moe_layer_), loss_attr(batch, r)));
  }
  return r;
}

void LearnedRouter::backward(Context& context, const MicroBatch& batch, const Routing& r,
                             const Tensor& d_weights, const Tensor& dx) {
  const auto make = [&](const Shape& shape, const char* name) {
    return context.memory.allocate(shape, context.real(), MemoryClass::router, name);
  };
  const Tensor d_all = make(r.logits.shape, "router logit gradient");
  context.launch(router_backward(r.logits, r.probs, r.ids, r.weights, d_weights, r.global_counts,
                                 d_all, loss_attr(batch, r)));
  const Tensor d_logits = tp_.slice(d_all);
  GemmAttr weight;
  weight.transpose_a = true;
  weight.accumulate = true;
  context.launch_parameter_gradient(gemm(r.input, d_logits, {}, weight_->gradient, {}, weight));
  Tensor d_input = make(r.input.shape, "router input gradient");
  GemmAttr input;
  input.transpose_b = true;
  const Tensor& acted_on = r.late_weight.defined() ? r.late_weight : weight_->value;
  context.launch(gemm(d_logits, acted_on, {}, d_input, {}, input));
  context.launch(router_input_backward(d_input, dx, input_attr(context, batch, dx.shape[0])));
}

}  // namespace moetwin
