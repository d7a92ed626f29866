#include "core/train/transformer_layer.h"

#include <cmath>

#include "core/ops/elementwise.h"
#include "core/scenario/model_size.h"

namespace moetwin {

namespace {
MoeLayer make_moe(ParameterSet& parameters, const LayerSetup& setup, int64_t layer,
                  const std::string& name, double output_std) {
  const ModelConfig& model = setup.scenario.model_config;
  const MoeLayerConfig& moe = model.moe_layer_config;
  const DistributedConfig& distributed = setup.scenario.distributed_config;
  const int64_t block = layer + 1;
  const RouterSetup router{model,
                           setup.scenario.routing,
                           name,
                           layer,
                           setup.balance.index_of(layer),
                           block,
                           setup.at.ddp,
                           setup.grid.ddp(),
                           setup.grid.expert_sharding(),
                           setup.scenario.training_config.numerics == "full",
                           setup.balance,
                           setup.trace,
                           setup.tp};
  DispatcherConfig dispatch;
  dispatch.layer = layer;
  dispatch.experts = moe.num_experts;
  dispatch.top_k = moe.top_k;
  dispatch.moe = moe;
  dispatch.slices = setup.tp.size();
  dispatch.slice = setup.tp.rank();
  dispatch.rebalancing = rebalancing_setup(setup.scenario);
  dispatch.rebalancing.always = setup.plan;
  const TrainingConfig& training = setup.scenario.training_config;
  dispatch.micro_batches =
      training.global_batch_size / (setup.grid.batch_ranks() * training.micro_batch_size);
  if (distributed.comm_optimization.all_to_all_overlap)
    dispatch.chunks = distributed.comm_optimization.all_to_all_chunks;
  std::vector<MoeLayer::Beside> beside;
  double routed_weight = 1;
  if (moe.shared_expert_hidden_size > 0) {
    const auto k = static_cast<double>(moe.top_k);
    routed_weight = moe.shared_expert_weighted ? k / (k + 1) : 1;
    beside.push_back(
        {Ffn(parameters,
             {name + ".shared_expert", model.hidden_size, moe.shared_expert_hidden_size,
              moe.expert_activation, moe.expert_bias, model.init_std, output_std, block},
             setup.tp),
         moe.shared_expert_weighted ? 1 / (k + 1) : 1});
  }
  if (moe.dense_ffn_beside_moe)
    beside.push_back({Ffn(parameters,
                          {name + ".dense", model.hidden_size, model.ffn_width(), model.activation,
                           model.ffn_bias, model.init_std, output_std, block},
                          setup.tp),
                      1});
  auto router_part = make_router(parameters, router);
  auto experts = std::make_unique<GroupedExperts>(parameters, model, setup.grid, setup.at,
                                                  name + ".experts", output_std, block);
  return MoeLayer(
      std::move(router_part),
      std::make_unique<AllToAllDispatcher>(dispatch, setup.grid, setup.communicators.ep.get(),
                                           setup.communicators.expert_tp.get()),
      std::move(experts), std::move(beside), routed_weight, setup.tp);
}
}  // namespace

Recompute recompute_of(const Scenario& scenario) {
  const TrainingConfig& config = scenario.training_config;
  Recompute r;
  r.full = config.recompute == "full";
  r.ends_early = r.full && recompute_ends_early(scenario);
  if (config.recompute != "selective") return r;
  for (const std::string& module : config.recompute_modules) {
    r.attention_core |= module == "attention_core";
    r.expert_activation |= module == "expert_activation";
    r.alternate_products |= module == "alternate_products";
  }
  return r;
}

TransformerLayer::TransformerLayer(ParameterSet& parameters, const LayerSetup& setup, int64_t layer)
    : layer_(layer), recompute_(recompute_of(setup.scenario)), tp_(setup.tp) {
  const ModelConfig& model = setup.scenario.model_config;
  const std::string name = "layers." + std::to_string(layer);
  const int64_t block = layer + 1;
  // Projections back to the residual stream start smaller, as in GPT-2: 2 L of them add up.
  const double output_std = model.init_std / std::sqrt(2.0 * static_cast<double>(model.num_layers));
  attention_norm_ = Norm(parameters, model, name + ".attention_norm", block, tp_.between());
  const ContextAttention cp(setup.communicators.cp.get(),
                            setup.scenario.distributed_config.context_parallel_exchange);
  attention_ = Attention(parameters, model, name + ".attention", output_std, block, tp_, cp);
  ffn_norm_ = Norm(parameters, model, name + ".ffn_norm", block, tp_.between());
  attention_dropout_ = Dropout(model.dropout, layer, DropoutSite::attention);
  ffn_dropout_ = Dropout(model.dropout, layer, DropoutSite::ffn);
  if (model.is_moe_layer(layer)) {
    moe_.emplace(make_moe(parameters, setup, layer, name + ".moe", output_std));
  } else {
    ffn_.emplace(parameters,
                 FfnConfig{name + ".ffn", model.hidden_size, model.ffn_width(), model.activation,
                           model.ffn_bias, model.init_std, output_std, block},
                 tp_);
  }
}

Tensor TransformerLayer::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                                 Saved& saved) {
  const Tensor out = run(context, batch, x, saved);
  if (!batch.backward) return out;
  if (recompute_.alternate_products && ffn_) {
    // Of qkv, output, gate | up and down the first, third, ... of seven: queries, values, gate and
    // what the layer adds last.
    Attention::Saved attention;
    attention.out = saved.attention.out;
    attention.lse = saved.attention.lse;
    attention.kept = saved.attention.kept;
    const int64_t tokens = attention.out.shape[0];
    saved = {};
    saved.x = x;
    saved.attention = std::move(attention);
    saved.products =
        context.activation({tokens * (attention_.kept_width() + ffn_->kept_width()) + x.elements()},
                           "products kept by selective recompute");
    return out;
  }
  forget(context, x, saved);
  return out;
}

void TransformerLayer::forget(const Context& context, const Tensor& x, Saved& saved) const {
  if (recompute_.full) {
    MoeLayer::Saved moe = std::move(saved.moe);
    MoeLayer::forget(moe);
    saved = {};
    saved.x = x;
    saved.moe = std::move(moe);
  }
  if (recompute_.attention_core)
    saved.attention.forget_core(context.device.properties().kernels == KernelClass::moetwin);
  if (recompute_.expert_activation)
    for (DispatchChunk& chunk : saved.moe.dispatch.chunks)
      chunk.saved.hidden = chunk.saved.kept = {};
}

template <class Attend>
TransformerLayer::Middle TransformerLayer::to_ffn(Context& context, const MicroBatch& batch,
                                                  const Tensor& x, Saved& saved,
                                                  const Attend& attend) {
  const int64_t first = tp_.first_of(x, batch.tokens());
  const Tensor normed = attention_norm_.forward(context, x, saved.attention_norm);
  const Tensor attended = tp_.leave(context, attend(tp_.enter(context, normed)));
  saved.attention.x = normed;  // of a slice: the backward gathers it again
  saved.attention_mask = attention_dropout_.apply(context, batch, first, attended);
  Middle middle;
  middle.residual = context.activation(x.shape, "residual after attention");
  context.launch(add(x, attended, middle.residual));
  middle.normed = ffn_norm_.forward(context, middle.residual, saved.ffn_norm);
  return middle;
}

Tensor TransformerLayer::run(Context& context, const MicroBatch& batch, const Tensor& x,
                             Saved& saved) {
  const auto attend = [&](const Tensor& in) {
    return attention_.forward(context, in, saved.attention);
  };
  const Middle middle = to_ffn(context, batch, x, saved, attend);
  Tensor out;
  if (moe_) {
    out = moe_->forward(context, batch, middle.normed, saved.moe);
  } else {
    out = tp_.leave(context, ffn_->forward(context, tp_.enter(context, middle.normed), saved.ffn));
    saved.ffn.x = middle.normed;
  }
  if (moe_ && batch.watch && !batch.backward)
    batch.watch->routed.push_back(
        {layer_, saved.moe.routing.ids, saved.moe.routing.probs, saved.moe.routing.logits});
  saved.ffn_mask = ffn_dropout_.apply(context, batch, tp_.first_of(x, batch.tokens()), out);
  context.launch(add(middle.residual, out, out));
  return out;
}

void TransformerLayer::run_again(Context& context, const MicroBatch& batch, Saved& saved) {
  const Tensor x = saved.x;
  // Experts' outputs are read by the gradient of their weights in the sum.
  if (moe_ || !recompute_.ends_early) {
    run(context, batch, x, saved);
    return;
  }
  const auto attend = [&](const Tensor& in) {
    return attention_.forward(context, in, saved.attention);
  };
  const Middle middle = to_ffn(context, batch, x, saved, attend);
  ffn_->forward_hidden(context, tp_.enter(context, middle.normed), saved.ffn);
  saved.ffn.x = middle.normed;
}

void TransformerLayer::remake(Context& context, const MicroBatch& batch, Saved& saved) {
  const Tensor x = saved.x;
  saved.products = {};
  const auto attend = [&](const Tensor& in) {
    return attention_.remake(context, in, saved.attention);
  };
  const Middle middle = to_ffn(context, batch, x, saved, attend);
  ffn_->remake(context, tp_.enter(context, middle.normed), saved.ffn);
  saved.ffn.x = middle.normed;
}

Tensor TransformerLayer::backward(Context& context, const MicroBatch& batch, const Tensor& dy,
                                  Saved& saved) {
  if (recompute_.full) {
    const PhaseScope phase(context.device, context.phase, Phase::recompute, "recompute");
    run_again(context, batch, saved);
  } else if (saved.products.defined()) {
    const PhaseScope phase(context.device, context.phase, Phase::recompute, "recompute");
    remake(context, batch, saved);
  }
  // dy is the gradient of both branches; dropout needs a copy of it.
  const int64_t first = tp_.first_of(dy, batch.tokens());
  const auto branch = [&](const Dropout& dropout, const Tensor& gradient) {
    if (!dropout.active(batch)) return gradient;
    const Tensor copied = context.activation(gradient.shape, "dropped gradient");
    dropout.apply_to(context, batch, first, gradient, copied);
    return copied;
  };
  const Tensor d_out = branch(ffn_dropout_, dy);
  Tensor d_normed2;
  if (moe_) {
    d_normed2 = moe_->backward(context, batch, d_out, saved.moe);
  } else {
    saved.ffn.x = tp_.enter(context, saved.ffn.x);
    d_normed2 = tp_.leave(context, ffn_->backward(context, saved.ffn, tp_.enter(context, d_out)));
  }
  if (moe_ && batch.watch) batch.watch->weighed.push_back({layer_, saved.moe.d_weights});
  const Tensor d_middle = ffn_norm_.backward(context, saved.ffn_norm, d_normed2);
  context.launch(add(d_middle, dy, d_middle));
  const Tensor d_attended = tp_.enter(context, branch(attention_dropout_, d_middle));
  saved.attention.x = tp_.enter(context, saved.attention.x);
  const Tensor d_normed =
      tp_.leave(context, attention_.backward(context, saved.attention, d_attended));
  const Tensor dx = attention_norm_.backward(context, saved.attention_norm, d_normed);
  context.launch(add(dx, d_middle, dx));
  if (moe_) moe_->settle(context, saved.moe);
  return dx;
}

}  // namespace moetwin
