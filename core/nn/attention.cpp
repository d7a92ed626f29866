#include "core/nn/attention.h"

#include "core/base/error.h"
#include "core/nn/norm.h"

namespace moetwin {

Attention::Attention(ParameterSet& parameters, const ModelConfig& model, const std::string& name,
                     double output_init_std, int64_t block, const TensorParallel& tp) {
  require(model.num_attention_heads % tp.size() == 0 && model.kv_heads() % tp.size() == 0,
          "TP divides the heads");
  heads_.query_heads = model.num_attention_heads / tp.size();
  heads_.kv_heads = model.kv_heads() / tp.size();
  heads_.head_dim = model.dim_per_head();
  heads_.sequence_length = model.sequence_length;
  heads_.epsilon = model.norm_epsilon;
  rotary_ = model.position_embedding == "rotary";
  rotary_base_ = model.rotary_base;
  rotary_scaling_ = model.rotary_scaling_factor;
  qk_norm_ = model.qk_norm;
  const int64_t queries = model.num_attention_heads * heads_.head_dim;
  const int64_t keys = model.kv_heads() * heads_.head_dim;
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
  out_ = Linear(parameters,
                {name + ".out", queries, model.hidden_size, model.attention_bias, output_init_std,
                 block, LinearSplit::rows},
                tp);
  if (qk_norm_) {
    const AxisUse tensor = tp.on_parts();
    gamma_q_ = &add_vector(parameters, name + ".q_norm.gamma", heads_.head_dim, 1, block, tensor);
    gamma_k_ = &add_vector(parameters, name + ".k_norm.gamma", heads_.head_dim, 1, block, tensor);
  }
}

RotaryAttr Attention::rotary_attr(bool inverse) const {
  RotaryAttr attr;
  attr.query_heads = heads_.query_heads;
  attr.kv_heads = heads_.kv_heads;
  attr.head_dim = heads_.head_dim;
  attr.sequence_length = heads_.sequence_length;
  attr.base = rotary_base_;
  attr.scaling_factor = rotary_scaling_;
  attr.inverse = inverse;
  return attr;
}

void Attention::core(Context& context, Saved& saved) const {
  const int64_t tokens = saved.qkv.shape[0];
  saved.out =
      context.activation({tokens, heads_.query_heads * heads_.head_dim}, "attention output");
  saved.lse = context.memory.allocate({tokens, heads_.query_heads}, context.real(),
                                      MemoryClass::activations, "attention log-sum-exp");
  saved.kept = context.launch_keeping(attention(saved.qkv, saved.out, saved.lse, heads_));
}

Tensor Attention::forward(Context& context, const Tensor& x, Saved& saved) const {
  const int64_t tokens = x.shape[0];
  saved.x = x;
  saved.qkv = qkv_.forward(context, x);
  if (qk_norm_) {
    saved.projected = saved.qkv;
    saved.qkv = context.activation(saved.projected.shape, "normed qkv");
    saved.norm_rstd =
        context.memory.allocate({tokens, heads_.query_heads + heads_.kv_heads}, context.real(),
                                MemoryClass::activations, "qk norm rstd");
    context.launch(qk_norm(saved.projected, gamma_q_->value, gamma_k_->value, saved.qkv,
                           saved.norm_rstd, heads_));
  }
  if (rotary_) context.launch(rotary(saved.qkv, rotary_attr(false)));
  core(context, saved);
  return out_.forward(context, saved.out);
}

Tensor Attention::backward(Context& context, Saved& saved, const Tensor& dy) const {
  if (!saved.out.defined()) {
    const PhaseScope phase(context.device, context.phase, Phase::recompute, "recompute");
    core(context, saved);
  }
  Tensor d_out = out_.backward(context, saved.out, dy);
  Tensor d_qkv = context.activation(saved.qkv.shape, "qkv gradient");
  context.launch(attention_backward(saved.qkv, saved.out, saved.lse, d_out, d_qkv, heads_));
  if (rotary_) context.launch(rotary(d_qkv, rotary_attr(true)));
  if (!qk_norm_) return qkv_.backward(context, saved.x, d_qkv);
  Tensor d_projected = context.activation(saved.qkv.shape, "projected qkv gradient");
  context.launch(qk_norm_backward(saved.projected, gamma_q_->value, gamma_k_->value,
                                  saved.norm_rstd, d_qkv, d_projected, gamma_q_->gradient,
                                  gamma_k_->gradient, heads_));
  return qkv_.backward(context, saved.x, d_projected);
}

}  // namespace moetwin
