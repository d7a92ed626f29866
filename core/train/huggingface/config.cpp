#include "core/train/huggingface/config.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace moetwin {

namespace {

constexpr double kLatentEpsilon = 1e-6;  // of DeepSeek's latent norms, which no key sets

std::string type_of(const ModelConfig& m) {
  if (m.latent()) return "deepseek_v3";
  if (!m.qk_norm) return "mixtral";
  return m.qk_norm_over == "head" ? "qwen3_moe" : "olmoe";
}

/// Keys that must have a value, each with the one that has a counterpart.
class Needs {
 public:
  explicit Needs(const std::string& type) : type_(type) {}
  template <class T>
  void equal(const std::string& key, const T& is, const T& legal) {
    if (is != legal) add(key, fmt::format("{}", is), fmt::format("{}", legal));
  }
  void add(const std::string& key, const std::string& is, const std::string& legal) {
    faults_ += fmt::format("\n  {}: {}: {} has no such thing; legal for export: {}", key, is, type_,
                           legal);
  }
  void check() const {
    if (!faults_.empty())
      throw Error(ErrorClass::configuration,
                  fmt::format("no Hugging Face model computes what this one does:{}", faults_));
  }

 private:
  std::string type_, faults_;
};

void check_model(const Scenario& s, const std::string& type) {
  const ModelConfig& m = s.model_config;
  const MoeLayerConfig& moe = m.moe_layer_config;
  const RoutingConfig& r = s.routing;
  const std::string model = "model_config.", layer = "model_config.moe_layer_config.";
  const bool deepseek = type == "deepseek_v3", qwen = type == "qwen3_moe";
  const bool dense_layers = m.num_moe_layers() < m.num_layers;
  Needs needs(type);
  if (moe.num_experts == 0) needs.add(layer + "num_experts", "0", "1 or more");
  needs.equal<std::string>(model + "normalization", m.normalization, "rmsnorm");
  needs.equal<std::string>(model + "position_embedding", m.position_embedding, "rotary");
  needs.equal<std::string>(layer + "expert_activation", moe.expert_activation, "swiglu");
  needs.equal(layer + "expert_bias", moe.expert_bias, false);
  if (dense_layers) {
    needs.equal<std::string>(model + "activation", m.activation, "swiglu");
    needs.equal(model + "ffn_bias", m.ffn_bias, false);
  }
  needs.equal(model + "embedding_offset", m.embedding_offset, 0.0);
  needs.equal(layer + "dense_ffn_beside_moe", moe.dense_ffn_beside_moe, false);
  needs.equal(layer + "shared_expert_weighted", moe.shared_expert_weighted, false);
  needs.equal<std::string>("routing.source", r.source, "learned");
  needs.equal<std::string>("routing.score_function", r.score_function,
                           deepseek ? "sigmoid" : "softmax");
  if (type == "mixtral")
    needs.equal("routing.normalize_weights", r.normalize_weights, 1.0);
  else if (r.normalize_weights != 0 && r.normalize_weights != 1)
    needs.add("routing.normalize_weights", fmt::format("{}", r.normalize_weights), "0, 1");
  if (!qwen) needs.equal(layer + "moe_every_k_layers", moe.moe_every_k_layers, int64_t{1});
  if (type == "mixtral") needs.equal(model + "attention_bias", m.attention_bias, false);
  if (type == "olmoe" && m.head_dim != 0 && m.head_dim * m.num_attention_heads != m.hidden_size)
    needs.add(model + "head_dim", fmt::format("{}", m.head_dim), "0");
  if (deepseek) {
    needs.equal(model + "norm_epsilon", m.norm_epsilon, kLatentEpsilon);
    const int64_t shared = moe.shared_expert_hidden_size;
    if (shared == 0 || shared % m.expert_width() != 0)
      needs.add(layer + "shared_expert_hidden_size", fmt::format("{}", shared),
                fmt::format("a multiple of the expert width {}", m.expert_width()));
  } else {
    needs.equal("routing.weight_scale", r.weight_scale, 1.0);
    needs.equal("routing.groups", r.groups, int64_t{1});
    needs.equal(layer + "bias_update_rate", moe.bias_update_rate, 0.0);
    needs.equal(layer + "shared_expert_hidden_size", moe.shared_expert_hidden_size, int64_t{0});
    if (!qwen) needs.equal(layer + "first_dense_layers", moe.first_dense_layers, int64_t{0});
  }
  if (moe.capacity_factor)
    needs.add(layer + "capacity_factor", fmt::format("{}", *moe.capacity_factor), "null");
  needs.check();
}

Json::Value integer(int64_t value) { return Json::Value(Json::Int64(value)); }

Json::Value rope_scaling(const ModelConfig& m) {
  Json::Value scaling;
  if (m.rotary_scaling == "linear" && m.rotary_scaling_factor == 1) return scaling;
  scaling["rope_type"] = m.rotary_scaling;
  scaling["type"] = m.rotary_scaling;
  scaling["factor"] = m.rotary_scaling_factor;
  if (m.rotary_scaling == "linear") return scaling;
  scaling["original_max_position_embeddings"] = integer(m.yarn.original_sequence_length);
  scaling["beta_fast"] = m.yarn.beta_fast;
  scaling["beta_slow"] = m.yarn.beta_slow;
  if (m.yarn.mscale != 0) scaling["mscale"] = m.yarn.mscale;
  if (m.yarn.mscale_all_dim != 0) scaling["mscale_all_dim"] = m.yarn.mscale_all_dim;
  return scaling;
}

void put_deepseek(const Scenario& s, Json::Value& json) {
  const ModelConfig& m = s.model_config;
  const LatentAttentionConfig& l = m.latent_attention;
  const MoeLayerConfig& moe = m.moe_layer_config;
  json["q_lora_rank"] = l.q_lora_rank ? integer(l.q_lora_rank) : Json::Value();
  json["kv_lora_rank"] = integer(l.kv_lora_rank);
  json["qk_nope_head_dim"] = integer(l.qk_nope_head_dim);
  json["qk_rope_head_dim"] = integer(l.qk_rope_head_dim);
  json["v_head_dim"] = integer(l.v_head_dim);
  json["rope_interleave"] = true;
  json["n_routed_experts"] = integer(moe.num_experts);
  json["n_shared_experts"] = integer(moe.shared_expert_hidden_size / m.expert_width());
  json["first_k_dense_replace"] = integer(moe.first_dense_layers);
  json["n_group"] = integer(s.routing.groups);
  json["topk_group"] = integer(s.routing.kept_groups);
  json["routed_scaling_factor"] = s.routing.weight_scale;
  json["scoring_func"] = "sigmoid";
  json["topk_method"] = "noaux_tc";
  json["num_nextn_predict_layers"] = 0;
}

}  // namespace

HuggingFaceConfig huggingface_config(const Scenario& s, const std::string& dtype) {
  const ModelConfig& m = s.model_config;
  const MoeLayerConfig& moe = m.moe_layer_config;
  HuggingFaceConfig config;
  const std::string type = config.model_type = type_of(m);
  check_model(s, type);
  Json::Value& json = config.json;
  json["model_type"] = type;
  json["architectures"].append(type == "mixtral"     ? "MixtralForCausalLM"
                               : type == "qwen3_moe" ? "Qwen3MoeForCausalLM"
                               : type == "olmoe"     ? "OlmoeForCausalLM"
                                                     : "DeepseekV3ForCausalLM");
  json["vocab_size"] = integer(m.vocab_size);
  json["hidden_size"] = integer(m.hidden_size);
  json["num_hidden_layers"] = integer(m.num_layers);
  json["num_attention_heads"] = integer(m.num_attention_heads);
  json["num_key_value_heads"] = integer(m.kv_heads());
  if (type == "qwen3_moe" || (type == "mixtral" && m.head_dim != 0))
    json["head_dim"] = integer(m.dim_per_head());
  json["max_position_embeddings"] = integer(m.sequence_length);
  json["rms_norm_eps"] = m.norm_epsilon;
  json["rope_theta"] = m.rotary_base;
  json["rope_scaling"] = rope_scaling(m);
  json["hidden_act"] = "silu";
  json["tie_word_embeddings"] = m.tie_embeddings;
  json["initializer_range"] = m.init_std;
  json["torch_dtype"] = dtype == "bf16" ? "bfloat16" : dtype == "fp16" ? "float16" : "float32";
  json["attention_dropout"] = 0.0;
  json["num_experts_per_tok"] = integer(moe.top_k);
  if (type != "mixtral") {
    json["attention_bias"] = m.attention_bias;
    json["norm_topk_prob"] = s.routing.normalize_weights == 1;
  }
  // In these two intermediate_size is an expert's.
  const bool experts = type == "mixtral" || type == "olmoe";
  json["intermediate_size"] = integer(experts ? m.expert_width() : m.ffn_width());
  if (!experts) json["moe_intermediate_size"] = integer(m.expert_width());
  if (type == "mixtral") {
    json["num_local_experts"] = integer(moe.num_experts);
    json["sliding_window"] = Json::Value();
    json["router_jitter_noise"] = s.routing.jitter_epsilon;
  } else if (type == "deepseek_v3") {
    put_deepseek(s, json);
  } else {
    json["num_experts"] = integer(moe.num_experts);
  }
  if (type == "qwen3_moe") {
    json["decoder_sparse_step"] = integer(moe.moe_every_k_layers);
    json["mlp_only_layers"] = Json::Value(Json::arrayValue);
    for (int64_t i = 0; i < moe.first_dense_layers; ++i) json["mlp_only_layers"].append(integer(i));
  }
  if (type == "olmoe") json["clip_qkv"] = Json::Value();
  // k when balanced there, 1 here.
  if (type != "deepseek_v3")
    json["router_aux_loss_coef"] = moe.aux_loss_factor / static_cast<double>(moe.top_k);
  const auto leave = [&](const std::string& key, double value) {
    if (value != 0) config.left_out.push_back(fmt::format("{} = {} (training only)", key, value));
  };
  if (type != "mixtral") leave("routing.jitter_epsilon", s.routing.jitter_epsilon);
  leave("routing.noise.scale", s.routing.noise.scale);
  leave("model_config.dropout", m.dropout);
  leave("model_config.moe_layer_config.z_loss_factor", moe.z_loss_factor);
  leave("model_config.moe_layer_config.importance_loss_factor", moe.importance_loss_factor);
  leave("model_config.moe_layer_config.bias_update_rate", moe.bias_update_rate);
  if (type == "deepseek_v3")
    leave("model_config.moe_layer_config.aux_loss_factor", moe.aux_loss_factor);
  return config;
}

}  // namespace moetwin
