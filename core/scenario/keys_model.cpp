// model_config and moe_layer_config.
#include "core/scenario/key_list.h"

namespace moetwin {
namespace {

void add_moe_keys(KeyList& list) {
  list.section("model_config.moe_layer_config", "The MoE layers, their losses and capacity.");
  list.key(MOETWIN_KEY(model_config.moe_layer_config.num_experts),
           "Experts of each MoE layer; 0: a dense model.")
      .between(0, 1 << 16);
  list.key(MOETWIN_KEY(model_config.moe_layer_config.top_k), "Experts each token goes to.")
      .between(1, 1 << 10);
  list.key(MOETWIN_KEY(model_config.moe_layer_config.moe_every_k_layers),
           "Layer i, from 0, is an MoE layer where i mod n = n - 1.")
      .between(1, 1 << 16);
  list.key(MOETWIN_KEY(model_config.moe_layer_config.first_dense_layers),
           "So many layers at the start are dense, whatever moe_every_k_layers says.")
      .between(0, 1 << 16);
  list.key(MOETWIN_KEY(model_config.moe_layer_config.aux_loss_factor),
           "Coefficient of the balance loss E * sum(f_i * P_i), mean over MoE layers; 0: off.")
      .at_least(0);
  list.key(MOETWIN_KEY(model_config.moe_layer_config.aux_loss_scope),
           "Tokens over which the balance loss counts.")
      .one_of({"micro_batch", "sequence", "global_batch"});
  list.key(MOETWIN_KEY(model_config.moe_layer_config.z_loss_factor),
           "Coefficient of mean(logsumexp(router logits)^2); 0: off.")
      .at_least(0);
  list.key(MOETWIN_KEY(model_config.moe_layer_config.importance_loss_factor),
           "Coefficient of the squared coefficient of variation of summed scores; 0: off.")
      .at_least(0);
  list.key(MOETWIN_KEY(model_config.moe_layer_config.load_variance_factor),
           "Coefficient of the variance of expert counts, whose gradient is exactly zero; 0: off.")
      .at_least(0);
  list.key(MOETWIN_KEY(model_config.moe_layer_config.bias_update_rate),
           "Step of the selection bias that balances without a loss; 0: off.")
      .at_least(0);
  list.key(MOETWIN_KEY(model_config.moe_layer_config.bias_update_delay_steps),
           "After step t the selection bias moves by the counts of step t - d, and not at all "
           "while t "
           "<= d; 0: by those of now.")
      .in("steps")
      .between(0, 1 << 10);
  list.key(MOETWIN_KEY(model_config.moe_layer_config.bias_count_ema),
           "c in m_i = c m_i + (1 - c) (E n_i / sum n - 1), from m = 0: the selection bias follows "
           "the sign of this average of excess loads; 0: of the last one.")
      .at_least(0)
      .below(1);
  list.key(MOETWIN_KEY(model_config.moe_layer_config.capacity_factor),
           "Capacity of an expert in units of its mean load; null: nothing is dropped.")
      .above(0);
  list.key(MOETWIN_KEY(model_config.moe_layer_config.min_capacity),
           "Least capacity of an expert where there is a capacity factor.")
      .in("tokens")
      .at_least(0);
  list.key(MOETWIN_KEY(model_config.moe_layer_config.drop_policy),
           "Which assignments stay where an expert is over capacity.")
      .one_of({"position", "probability"});
  list.key(MOETWIN_KEY(model_config.moe_layer_config.expert_hidden_size),
           "FFN width of one expert; 0: 4 * hidden_size.")
      .between(0, 1 << 24);
  list.key(MOETWIN_KEY(model_config.moe_layer_config.shared_expert_hidden_size),
           "FFN width of the expert that sees every token; 0: no shared expert.")
      .between(0, 1 << 24);
  list.key(MOETWIN_KEY(model_config.moe_layer_config.shared_expert_weighted),
           "Weigh the shared expert by 1/(k+1) and the routed ones by k/(k+1).");
  list.key(MOETWIN_KEY(model_config.moe_layer_config.dense_ffn_beside_moe),
           "Keep the dense FFN beside the experts in MoE layers.");
  list.key(MOETWIN_KEY(model_config.moe_layer_config.expert_activation),
           "Activation of the experts, the shared one too.")
      .one_of({"gelu", "gelu_tanh", "swiglu"});
  list.key(MOETWIN_KEY(model_config.moe_layer_config.expert_bias),
           "Biases of the expert projections, the shared one's too.");
  list.key(MOETWIN_KEY(model_config.moe_layer_config.expert_init_scale),
           "Multiplies the standard deviation of initial expert weights.")
      .at_least(0);
}

void add_latent_keys(KeyList& list) {
  list.section("model_config.latent_attention",
               "Widths of multi-head latent attention, in the names of DeepSeek's config.json.");
  list.key(MOETWIN_KEY(model_config.latent_attention.q_lora_rank),
           "Width of the queries' latent; 0: queries straight from the input.")
      .between(0, 1 << 20);
  list.key(MOETWIN_KEY(model_config.latent_attention.kv_lora_rank),
           "Width of the latent that keys and values share.")
      .between(1, 1 << 20);
  list.key(MOETWIN_KEY(model_config.latent_attention.qk_nope_head_dim),
           "Elements of a query or key head without positions.")
      .between(0, 1 << 16);
  list.key(MOETWIN_KEY(model_config.latent_attention.qk_rope_head_dim),
           "Elements of a query head that are rotated; all heads share one key of it.")
      .between(2, 1 << 16);
  list.key(MOETWIN_KEY(model_config.latent_attention.v_head_dim), "Elements of a value head.")
      .between(1, 1 << 16);
}

void add_yarn_keys(KeyList& list) {
  list.section("model_config.yarn", "Rotary frequencies with rotary_scaling yarn.");
  list.key(MOETWIN_KEY(model_config.yarn.original_sequence_length),
           "Length that the frequencies were trained for.")
      .in("tokens")
      .between(1, 1 << 24);
  list.key(MOETWIN_KEY(model_config.yarn.beta_fast),
           "Frequencies with at least so many turns in that length stay as they are.")
      .above(0);
  list.key(MOETWIN_KEY(model_config.yarn.beta_slow),
           "Those with at most so many are divided by rotary_scaling_factor.")
      .above(0);
  list.key(MOETWIN_KEY(model_config.yarn.mscale),
           "With mscale_all_dim: cosines and sines are multiplied by m(mscale) / "
           "m(mscale_all_dim), where m(x) = 0.1 x ln(factor) + 1; 0: by m(1).")
      .at_least(0);
  list.key(MOETWIN_KEY(model_config.yarn.mscale_all_dim),
           "Scores of latent attention are multiplied by m(mscale_all_dim)^2; 0: they are not.")
      .at_least(0);
}

}  // namespace

void add_model_keys(KeyList& list) {
  list.section("model_config", "The transformer.");
  list.key(MOETWIN_KEY(model_config.model_type), "Architecture.").one_of({"transformer_moe"});
  list.key(MOETWIN_KEY(model_config.hidden_size), "Width of the residual stream.")
      .between(1, 1 << 20);
  list.key(MOETWIN_KEY(model_config.num_layers), "Transformer layers.").between(1, 1 << 16);
  list.key(MOETWIN_KEY(model_config.num_attention_heads), "Attention (query) heads.")
      .between(1, 1 << 16);
  list.key(MOETWIN_KEY(model_config.num_key_value_heads),
           "Key and value heads, a divisor of the attention heads; 0: as many as those.")
      .between(0, 1 << 16);
  list.key(MOETWIN_KEY(model_config.head_dim),
           "Width of one head; 0: hidden_size / num_attention_heads.")
      .between(0, 1 << 16);
  list.key(MOETWIN_KEY(model_config.attention),
           "Kind of attention; widths of the latent kind are "
           "those of latent_attention.")
      .one_of({"multi_head", "multi_head_latent"});
  list.key(MOETWIN_KEY(model_config.ffn_hidden_size), "Width of the dense FFN; 0: 4 * hidden_size.")
      .between(0, 1 << 24);
  list.key(MOETWIN_KEY(model_config.vocab_size), "Size of the vocabulary.")
      .in("tokens")
      .between(2, 1 << 24);
  list.key(MOETWIN_KEY(model_config.sequence_length), "Length of one training sequence.")
      .in("tokens")
      .between(1, 1 << 24);
  list.key(MOETWIN_KEY(model_config.normalization), "Kind of normalisation.")
      .one_of({"layernorm", "rmsnorm"});
  list.key(MOETWIN_KEY(model_config.norm_epsilon), "Added to the variance in normalisation.")
      .above(0);
  list.key(MOETWIN_KEY(model_config.position_embedding), "How positions enter.")
      .one_of({"learned", "rotary", "none"});
  list.key(MOETWIN_KEY(model_config.rotary_base), "Base of the rotary frequencies.").above(1);
  list.key(MOETWIN_KEY(model_config.rotary_scaling_factor),
           "By how much longer sequences may be than those the rotary frequencies are for.")
      .above(0);
  list.key(MOETWIN_KEY(model_config.rotary_scaling),
           "How the factor enters; linear: positions are divided by it, yarn: by frequency.")
      .one_of({"linear", "yarn"});
  list.key(MOETWIN_KEY(model_config.activation), "Activation of the dense FFN.")
      .one_of({"gelu", "gelu_tanh", "swiglu"});
  list.key(MOETWIN_KEY(model_config.attention_bias), "Biases of the attention projections.");
  list.key(MOETWIN_KEY(model_config.ffn_bias), "Biases of the dense FFN.");
  list.key(MOETWIN_KEY(model_config.qk_norm), "RMS norm of queries and keys.");
  list.key(MOETWIN_KEY(model_config.qk_norm_over),
           "What that norm is over: each head, or the whole projection (as in OLMoE).")
      .one_of({"head", "projection"});
  list.key(MOETWIN_KEY(model_config.tie_embeddings), "LM head shares the token embedding.");
  list.key(MOETWIN_KEY(model_config.embedding_offset),
           "Added to every element of the embedding's output, in evaluation too: a mean that all "
           "tokens share, as hidden states of large models have; 0: off.");
  list.key(MOETWIN_KEY(model_config.dropout),
           "Dropout after embedding, attention and FFN or MoE; 0: off.")
      .at_least(0)
      .below(1);
  list.key(MOETWIN_KEY(model_config.init_std), "Standard deviation of initial weights.")
      .at_least(0);
  add_latent_keys(list);
  add_yarn_keys(list);
  add_moe_keys(list);
}

}  // namespace moetwin
