#include "core/nn/latent_projection.h"

#include "core/nn/rotary_angles.h"
#include "core/ops/elementwise.h"

namespace moetwin {

LatentProjection::LatentProjection(ParameterSet& parameters, const ModelConfig& model,
                                   const std::string& name, int64_t block, const TensorParallel& tp,
                                   int64_t sequence_length) {
  const LatentAttentionConfig& latent = model.latent_attention;
  const int64_t hidden = model.hidden_size, heads = model.num_attention_heads;
  const int64_t nope = latent.qk_nope_head_dim, rope = latent.qk_rope_head_dim;
  static_cast<RotaryAngles&>(attr_) = rotary_angles(model, rope);
  attr_.heads = heads / tp.size();
  attr_.nope_dim = nope;
  attr_.rope_dim = rope;
  attr_.value_dim = latent.v_head_dim;
  attr_.sequence_length = sequence_length;
  const auto linear = [&](const char* part, int64_t in, int64_t out, LinearSplit split) {
    return Linear(parameters, {name + part, in, out, false, model.init_std, block, split}, tp);
  };
  const auto norm = [&](const char* part, int64_t size) {
    return Norm(parameters, name + part, size, model.norm_epsilon, block, tp.on_parts());
  };
  has_q_latent_ = latent.q_lora_rank > 0;
  if (has_q_latent_) {
    q_down_ = linear(".q_down", hidden, latent.q_lora_rank, LinearSplit::copied);
    q_norm_ = norm(".q_latent_norm", latent.q_lora_rank);
  }
  q_up_ = linear(".q_up", has_q_latent_ ? latent.q_lora_rank : hidden, heads * (nope + rope),
                 LinearSplit::columns);
  kv_down_ = linear(".kv_down", hidden, latent.kv_lora_rank, LinearSplit::copied);
  kv_norm_ = norm(".kv_latent_norm", latent.kv_lora_rank);
  k_rope_ = linear(".k_rope", hidden, rope, LinearSplit::copied);
  kv_up_ = linear(".kv_up", latent.kv_lora_rank, heads * (nope + latent.v_head_dim),
                  LinearSplit::columns);
}

Tensor LatentProjection::forward(Context& context, const Tensor& x, Saved& saved) const {
  saved.q_normed = x;
  if (has_q_latent_)
    saved.q_normed = q_norm_.forward(context, q_down_.forward(context, x), saved.q_norm);
  const Tensor q = q_up_.forward(context, saved.q_normed);
  if (!has_q_latent_) saved.q_normed = {};
  saved.kv_normed = kv_norm_.forward(context, kv_down_.forward(context, x), saved.kv_norm);
  const Tensor kv = kv_up_.forward(context, saved.kv_normed);
  const Tensor k_rope = k_rope_.forward(context, x);
  const Tensor qkv = context.activation(
      {x.shape[0], attr_.heads * (2 * (attr_.nope_dim + attr_.rope_dim) + attr_.value_dim)},
      "latent qkv");
  context.launch(latent_qkv(q, kv, k_rope, qkv, attr_));
  return qkv;
}

Tensor LatentProjection::backward(Context& context, const Tensor& x, const Saved& saved,
                                  const Tensor& d_qkv) const {
  const int64_t tokens = x.shape[0], n = attr_.heads;
  const Tensor d_q =
      context.activation({tokens, n * (attr_.nope_dim + attr_.rope_dim)}, "query gradient");
  const Tensor d_kv = context.activation({tokens, n * (attr_.nope_dim + attr_.value_dim)},
                                         "latent key and value gradient");
  const Tensor d_k_rope = context.activation({tokens, attr_.rope_dim}, "rotated key gradient");
  context.launch(latent_qkv_backward(d_qkv, d_q, d_kv, d_k_rope, attr_));
  Tensor dx = q_up_.backward(context, has_q_latent_ ? saved.q_normed : x, d_q);
  if (has_q_latent_) dx = q_down_.backward(context, x, q_norm_.backward(context, saved.q_norm, dx));
  const Tensor d_latent =
      kv_norm_.backward(context, saved.kv_norm, kv_up_.backward(context, saved.kv_normed, d_kv));
  context.launch(add(dx, kv_down_.backward(context, x, d_latent), dx));
  context.launch(add(dx, k_rope_.backward(context, x, d_k_rope), dx));
  return dx;
}

}  // namespace moetwin
