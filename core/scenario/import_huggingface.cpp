#include <fmt/format.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/scenario/import_json.h"
#include "core/scenario/json_members.h"
#include "core/scenario/key_prefixes.h"

namespace moetwin {
namespace {

bool yes(const Json::Value& value, bool otherwise = false) {
  return value.isBool() ? value.asBool() : otherwise;
}

bool number(const Json::Value& value) { return value.isNumeric(); }

/// Frequencies of rotary positions: `rope_scaling` beside `rope_theta`, or `rope_parameters`.
void take_rotary(JsonMembers& in, ScenarioDraft& draft) {
  draft.set(kModel + "position_embedding", "rotary");
  in.take("rope_theta", kModel + "rotary_base");
  for (const std::string section : {"rope_scaling.", "rope_parameters."}) {
    in.take(section + "rope_theta", kModel + "rotary_base");
    std::string kind;
    for (const char* name : {"type", "rope_type"})
      if (const Json::Value& value = in.take(section + name); value.isString())
        kind = value.asString();
    if (kind.empty() || kind == "default") continue;
    if (kind != "linear" && kind != "yarn") {
      in.differ(section + "rope_type", "legal: default, linear, yarn; positions are not scaled");
      continue;
    }
    in.take(section + "factor", kModel + "rotary_scaling_factor");
    draft.set(kModel + "rotary_scaling", kind);
    if (kind == "linear") continue;
    in.take(section + "original_max_position_embeddings", kModel + "yarn.original_sequence_length");
    if (!draft.has(kModel + "yarn.original_sequence_length"))
      draft.set(kModel + "yarn.original_sequence_length", in.take("max_position_embeddings"));
    for (const char* name : {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"})
      in.take(section + name, kModel + "yarn." + name);
    if (number(in.take(section + "attention_factor")))
      in.differ(section + "attention_factor",
                "it follows from the factor, mscale and "
                "mscale_all_dim");
    if (!yes(in.take(section + "truncate"), true))
      in.differ(section + "truncate", "legal: true; the ramp's ends are whole pairs");
  }
}

void take_latent(JsonMembers& in, ScenarioDraft& draft, const std::string& type) {
  draft.set(kModel + "attention", "multi_head_latent");
  for (const char* name :
       {"q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"})
    in.take(name, kModel + "latent_attention." + name);
  for (const char* name : {"head_dim", "qk_head_dim", "rope_interleave"}) in.take(name);
  // As many as heads, or without meaning.
  const Json::Value& keys = in.take("num_key_value_heads");
  if (number(keys) && keys != in.take("num_attention_heads"))
    in.differ("num_key_value_heads", "every head has keys and values of its own");
  const Json::Value& epsilon = in.take("rms_norm_eps");
  if (type == "deepseek_v3" && number(epsilon) && epsilon.asDouble() != 1e-6)
    in.differ("rms_norm_eps", "norms of latents have 1e-6 there, the same as all others here");
}

void take_attention(JsonMembers& in, ScenarioDraft& draft, const std::string& type) {
  in.take("num_attention_heads", kModel + "num_attention_heads");
  const bool bias = yes(in.take("attention_bias"), type == "qwen2_moe");
  draft.set(kModel + "attention_bias", bias);
  if (type == "qwen2_moe")
    draft.note("attention_bias: all four projections have one here; in the model the last has not");
  if (type == "deepseek_v2" || type == "deepseek_v3") {
    take_latent(in, draft, type);
  } else {
    in.take("num_key_value_heads", kModel + "num_key_value_heads");
    in.take("head_dim", kModel + "head_dim");
  }
  if (type == "qwen3_moe" || type == "olmoe") draft.set(kModel + "qk_norm", true);
  if (type == "olmoe") draft.set(kModel + "qk_norm_over", "projection");
  if (number(in.take("clip_qkv")))
    in.differ("clip_qkv", "queries, keys and values are not clipped");
  const Json::Value& window = in.take("sliding_window");
  if (number(window) && yes(in.take("use_sliding_window"), true))
    in.differ("sliding_window", "attention sees the whole sequence");
  if (const Json::Value& dropout = in.take("attention_dropout");
      number(dropout) && dropout.asDouble() > 0)
    in.leave("attention_dropout", "attention weights are not dropped here");
}

void take_transformer(JsonMembers& in, ScenarioDraft& draft, const std::string& type) {
  in.take("hidden_size", kModel + "hidden_size");
  in.take("num_hidden_layers", kModel + "num_layers");
  in.take("vocab_size", kModel + "vocab_size");
  in.take("max_position_embeddings", kModel + "sequence_length");
  draft.note("sequence_length = max_position_embeddings, the longest the model is for");
  in.take("rms_norm_eps", kModel + "norm_epsilon");
  in.take("initializer_range", kModel + "init_std");
  draft.set(kModel + "normalization", "rmsnorm");
  take_rotary(in, draft);
  const Json::Value& activation = in.take("hidden_act");
  if (activation.isString() && activation.asString() != "silu")
    in.differ("hidden_act", "legal: silu; swiglu stands");
  draft.set(kModel + "activation", "swiglu");
  draft.set(kModel + "ffn_bias", false);
  draft.set(kModel + "tie_embeddings", yes(in.take("tie_word_embeddings")));
  take_attention(in, draft, type);
  for (const char* key : {"torch_dtype", "dtype"})
    if (const Json::Value& dtype = in.take(key); dtype.isString()) {
      const std::string name = dtype.asString();
      draft.set("training_config.dtype", name == "bfloat16"  ? "bf16"
                                         : name == "float16" ? "fp16"
                                                             : "fp32");
    }
}

/// Layers that are dense: all but every n-th, and the first ones.
void take_dense_layers(JsonMembers& in, ScenarioDraft& draft) {
  // Layer i is MoE where (i + 1) % step == 0, as here.
  in.take("decoder_sparse_step", kMoe + "moe_every_k_layers");
  in.take("first_k_dense_replace", kMoe + "first_dense_layers");
  if (const Json::Value& frequency = in.take("moe_layer_freq");
      number(frequency) && frequency.asInt() != 1)
    in.differ("moe_layer_freq", "legal: 1; every layer after the first ones is MoE here");
  const Json::Value& dense = in.take("mlp_only_layers");
  if (!dense.isArray() || dense.empty()) return;
  for (Json::ArrayIndex i = 0; i < dense.size(); ++i)
    if (!dense[i].isUInt() || dense[i].asUInt() != i)
      return in.differ("mlp_only_layers", "legal: the first ones, 0, 1, ...; these are MoE here");
  draft.set(kMoe + "first_dense_layers", dense.size());
}

void take_sizes(JsonMembers& in, ScenarioDraft& draft, const std::string& type) {
  draft.set(kMoe + "expert_activation", "swiglu");
  draft.set(kMoe + "expert_bias", false);
  for (const char* name : {"num_local_experts", "num_experts", "n_routed_experts"})
    in.take(name, kMoe + "num_experts");
  in.take("num_experts_per_tok", kMoe + "top_k");
  // Mixtral and OLMoE: intermediate_size is that of an expert; the others have dense layers too.
  const bool all_experts = type == "mixtral" || type == "olmoe";
  in.take("intermediate_size",
          all_experts ? kMoe + "expert_hidden_size" : kModel + "ffn_hidden_size");
  in.take("moe_intermediate_size", kMoe + "expert_hidden_size");
  take_dense_layers(in, draft);
  in.take("shared_expert_intermediate_size", kMoe + "shared_expert_hidden_size");
  if (type == "qwen2_moe")
    draft.differ("config.json: the shared expert's sigmoid gate", "its output is added as it is");
  if (const Json::Value& shared = in.take("n_shared_experts"); shared.isNumeric())
    draft.set(kMoe + "shared_expert_hidden_size",
              Json::Int64(shared.asInt64() * in.take("moe_intermediate_size").asInt64()));
}

void take_routing(JsonMembers& in, ScenarioDraft& draft, const std::string& type) {
  const Json::Value& norm = in.take("norm_topk_prob");
  const bool sigmoid = type == "deepseek_v3";
  draft.set("routing.normalize_weights", type == "mixtral" || yes(norm, sigmoid) ? 1 : 0);
  if (sigmoid) draft.set("routing.score_function", "sigmoid");
  in.take("scoring_func", "routing.score_function");
  in.take("routed_scaling_factor", "routing.weight_scale");
  in.take("n_group", "routing.groups");
  in.take("topk_group", "routing.kept_groups");
  in.take("router_jitter_noise", "routing.jitter_epsilon");
  const double k = draft.get(kMoe + "top_k").isNumeric() ? draft.get(kMoe + "top_k").asDouble() : 1;
  if (const Json::Value& coefficient = in.take("router_aux_loss_coef"); coefficient.isNumeric()) {
    draft.set(kMoe + "aux_loss_factor", coefficient.asDouble() * k);
    draft.note(
        fmt::format("aux_loss_factor = router_aux_loss_coef {} x top-k {}: the loss is k when "
                    "balanced there, 1 here; and all layers' tokens are one pool there",
                    coefficient.asDouble(), k));
    if (!yes(in.take("output_router_logits")))
      draft.note(
          "output_router_logits is not true: transformers leaves the balance loss out of "
          "training then; here its factor counts");
  }
  if (const Json::Value& coefficient = in.take("aux_loss_alpha"); coefficient.isNumeric()) {
    const Json::Value& layers = draft.get(kModel + "num_layers");
    const double l = layers.isNumeric() ? layers.asDouble() : 1;
    draft.set(kMoe + "aux_loss_factor", coefficient.asDouble() * l);
    draft.set(kMoe + "aux_loss_scope", yes(in.take("seq_aux"), true) ? "sequence" : "micro_batch");
    draft.note(
        fmt::format("aux_loss_factor = aux_loss_alpha {} x {} layers: the sum over layers "
                    "there, the mean here",
                    coefficient.asDouble(), l));
  }
  const Json::Value& method = in.take("topk_method");
  if (sigmoid) {
    draft.set(kMoe + "bias_update_rate", 0.001);
    if (!draft.has(kMoe + "aux_loss_factor")) draft.set(kMoe + "aux_loss_factor", 0);
    draft.note("bias_update_rate = 0.001, that of the model's own training; the file has none");
  } else if (method.isString() && method.asString() == "group_limited_greedy") {
    in.differ("topk_method", "groups are scored by their two best experts here, by the best there");
  }
  if (const Json::Value& more = in.take("num_nextn_predict_layers"); number(more) && more != 0)
    in.leave("num_nextn_predict_layers", "one token is predicted; their weights are left out");
}

}  // namespace

std::string json_kind(const std::string& text) {
  const Json::Value root = parse_object(text, "the file");
  for (const char* name : {"num_hidden_layers", "architectures"})
    if (root.isMember(name)) return "huggingface";
  for (const char* name : {"train_batch_size", "train_micro_batch_size_per_gpu",
                           "zero_optimization", "gradient_accumulation_steps", "expert_parallel"})
    if (root.isMember(name)) return "deepspeed";
  return "";
}

void import_huggingface(const std::string& text, const std::string& name, ScenarioDraft* draft) {
  const Json::Value root = parse_object(text, name);
  JsonMembers in(root, std::filesystem::path(name).filename().string(), draft);
  const Json::Value& type = in.take("model_type");
  const std::string kind = type.isString() ? type.asString() : "";
  bool known = false;
  for (const char* legal :
       {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2", "deepseek_v3"})
    known = known || kind == legal;
  if (!known)
    throw Error(ErrorClass::configuration,
                fmt::format("{}: model_type \"{}\"; legal: mixtral, qwen2_moe, qwen3_moe, olmoe, "
                            "deepseek_v2, deepseek_v3",
                            name, kind));
  // Its vocabulary is that of a tokenizer, which other programs run.
  draft->set("data.format", "tokens");
  const Json::Value& vocabulary = in.take("vocab_size");
  draft->set("data.token_dtype",
             number(vocabulary) && vocabulary.asInt64() > 65536 ? "uint32" : "uint16");
  draft->note("data.format tokens: data.files are to hold ids of the model's tokenizer");
  take_transformer(in, *draft, kind);
  take_sizes(in, *draft, kind);
  take_routing(in, *draft, kind);
  in.leave_rest("no counterpart");
}

}  // namespace moetwin
