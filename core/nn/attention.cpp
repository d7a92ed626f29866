#include "core/nn/attention.h"

#include "core/base/error.h"
#include "core/nn/norm.h"
#include "core/nn/rotary_angles.h"

namespace moetwin {

Attention::Attention(ParameterSet& parameters, const ModelConfig& model, const std::string& name,
                     double output_init_std, int64_t block, const TensorParallel& tp,
                     const ContextAttention& cp)
    : cp_(cp) {
  require(model.num_attention_heads % tp.size() == 0 && model.kv_heads() % tp.size() == 0,
          "TP divides the heads");
  heads_.query_heads = model.num_attention_heads / tp.size();
  heads_.kv_heads = model.kv_heads() / tp.size();
  heads_.head_dim = model.dim_per_head();
  heads_.value_dim = model.value_dim();
  heads_.sequence_length = model.sequence_length / cp.size();
  heads_.epsilon = model.norm_epsilon;
  heads_.scale = score_scale(model);
  const int64_t queries = model.num_attention_heads * heads_.head_dim;
  const int64_t keys = model.kv_heads() * heads_.head_dim;
  if (model.latent()) {
    latent_.emplace(parameters, model, name, block, tp, heads_.sequence_length);
  } else {
    rotary_ = model.position_embedding == "rotary";
    angles_ = rotary_angles(model, heads_.head_dim);
    qk_norm_ = model.qk_norm;
    norm_over_all_ = model.qk_norm_over == "projection";
    qkv_ = Linear(parameters,
                  {name + ".qkv",
                   model.hidden_size,
                   queries + 2 * keys,
                   model.attention_bias,
                   model.init_std,
                   block,
                   LinearSplit::columns,
                   {queries, keys, keys}},
                  tp);
  }
  out_ = Linear(parameters,
                {name + ".out", model.num_attention_heads * heads_.value_dim, model.hidden_size,
                 model.attention_bias, output_init_std, block, LinearSplit::rows},
                tp);
  if (qk_norm_) {
    require(!norm_over_all_ || (tp.size() == 1 && queries == keys),
            "a norm over all heads sees all of them, as many keys as queries");
    const int64_t size = norm_attr().head_dim;
    const AxisUse tensor = tp.on_parts();
    gamma_q_ = &add_vector(parameters, name + ".q_norm.gamma", size, 1, block, tensor);
    gamma_k_ = &add_vector(parameters, name + ".k_norm.gamma", size, 1, block, tensor);
  }
}

RotaryAttr Attention::rotary_attr(bool inverse) const {
  RotaryAttr attr;
  static_cast<RotaryAngles&>(attr) = angles_;
  attr.query_heads = heads_.query_heads;
  attr.kv_heads = heads_.kv_heads;
  attr.head_dim = heads_.head_dim;
  attr.sequence_length = heads_.sequence_length;
  attr.inverse = inverse;
  return attr;
}

HeadsAttr Attention::norm_attr() const {
  if (!norm_over_all_) return heads_;
  HeadsAttr all = heads_;
  all.query_heads = all.kv_heads = 1;
  all.head_dim = all.value_dim = heads_.query_heads * heads_.head_dim;
  return all;
}

void Attention::core(Context& context, Saved& saved) const {
  const int64_t tokens = saved.qkv.shape[0];
  if (!saved.out.defined())
    saved.out =
        context.activation({tokens, heads_.query_heads * heads_.value_dim}, "attention output");
  saved.lse = context.memory.allocate({tokens, heads_.query_heads}, context.real(),
                                      MemoryClass::activations, "attention log-sum-exp");
  saved.kept.clear();
  if (cp_.size() > 1)
    cp_.forward(context, heads_, saved.qkv, saved.out, saved.lse, saved.kept);
  else
    saved.kept.push_back(
        context.launch_keeping(attention(saved.qkv, saved.out, saved.lse, heads_)));
}

void Attention::Saved::forget_core(bool and_output) {
  lse = {};
  kept.clear();
  if (and_output) out = {};
}

void Attention::project(Context& context, const Tensor& x, Saved& saved) const {
  if (latent_) {
    saved.qkv = latent_->forward(context, x, saved.latent);
    return;
  }
  saved.qkv = qkv_.forward(context, x);
  if (qk_norm_) {
    const HeadsAttr attr = norm_attr();
    saved.projected = saved.qkv;
    saved.qkv = context.activation(saved.projected.shape, "normed qkv");
    saved.norm_rstd =
        context.memory.allocate({x.shape[0], attr.query_heads + attr.kv_heads}, context.real(),
                                MemoryClass::activations, "qk norm rstd");
    context.launch(qk_norm(saved.projected, gamma_q_->value, gamma_k_->value, saved.qkv,
                           saved.norm_rstd, attr));
  }
  if (rotary_) context.launch(rotary(saved.qkv, rotary_attr(false)));
}

Tensor Attention::project_back(Context& context, const Saved& saved, const Tensor& d_qkv) const {
  if (latent_) return latent_->backward(context, saved.x, saved.latent, d_qkv);
  if (rotary_) context.launch(rotary(d_qkv, rotary_attr(true)));
  if (!qk_norm_) return qkv_.backward(context, saved.x, d_qkv);
  Tensor d_projected = context.activation(saved.qkv.shape, "projected qkv gradient");
  context.launch(qk_norm_backward(saved.projected, gamma_q_->value, gamma_k_->value,
                                  saved.norm_rstd, d_qkv, d_projected, gamma_q_->gradient,
                                  gamma_k_->gradient, norm_attr()));
  return qkv_.backward(context, saved.x, d_projected);
}

Tensor Attention::forward(Context& context, const Tensor& x, Saved& saved) const {
  saved.x = x;
  project(context, x, saved);
  core(context, saved);
  return out_.forward(context, saved.out);
}

Tensor Attention::remake(Context& context, const Tensor& x, Saved& saved) const {
  const int64_t tokens = x.shape[0];
  const int64_t keys = heads_.kv_heads * heads_.head_dim;
  saved.x = x;
  saved.qkv = context.activation({tokens, kept_width() + keys}, "linear output");
  qkv_.forward_columns(context, x,
                       saved.qkv.reshaped({tokens * (kept_width() + keys)})
                           .slice(0, {tokens * keys})
                           .reshaped({tokens, keys}));
  if (rotary_) context.launch(rotary(saved.qkv, rotary_attr(false)));
  return out_.forward(context, saved.out);
}

Tensor Attention::backward(Context& context, Saved& saved, const Tensor& dy) const {
  if (!saved.lse.defined()) {
    const PhaseScope phase(context.device, context.phase, Phase::recompute, "recompute");
    core(context, saved);
  }
  Tensor d_out = out_.backward(context, saved.out, dy);
  Tensor d_qkv = context.activation(saved.qkv.shape, "qkv gradient");
  if (cp_.size() > 1)
    cp_.backward(context, heads_, saved.qkv, saved.out, saved.lse, d_out, d_qkv);
  else
    context.launch(attention_backward(saved.qkv, saved.out, saved.lse, d_out, d_qkv, heads_));
  return project_back(context, saved, d_qkv);
}

}  // namespace moetwin
