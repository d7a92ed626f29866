#include <fmt/format.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/scenario/import_json.h"
#include "core/scenario/json_members.h"

namespace moetwin {
namespace {

const std::string kModel = "model_config.", kMoe = "model_config.moe_layer_config.";

bool yes(const Json::Value& value, bool otherwise = false) {
  return value.isBool() ? value.asBool() : otherwise;
}

void take_transformer(JsonMembers& in, ScenarioDraft& draft, const std::string& type) {
  in.take("hidden_size", kModel + "hidden_size");
  in.take("num_hidden_layers", kModel + "num_layers");
  in.take("num_attention_heads", kModel + "num_attention_heads");
  in.take("num_key_value_heads", kModel + "num_key_value_heads");
  in.take("head_dim", kModel + "head_dim");
  in.take("vocab_size", kModel + "vocab_size");
  in.take("max_position_embeddings", kModel + "sequence_length");
  draft.note("sequence_length = max_position_embeddings, the longest the model is for");
  in.take("rms_norm_eps", kModel + "norm_epsilon");
  in.take("initializer_range", kModel + "init_std");
  draft.set(kModel + "normalization", "rmsnorm");
  draft.set(kModel + "position_embedding", "rotary");
  in.take("rope_theta", kModel + "rotary_base");
  in.take("rope_parameters.rope_theta", kModel + "rotary_base");
  const std::string scaling = in.take("rope_scaling.type").isString()
                                  ? in.take("rope_scaling.type").asString()
                                  : std::string();
  if (scaling == "linear")
    in.take("rope_scaling.factor", kModel + "rotary_scaling_factor");
  else if (!scaling.empty())
    in.leave("rope_scaling.type", "legal: linear; positions are not scaled");
  const Json::Value& activation = in.take("hidden_act");
  if (activation.isString() && activation.asString() != "silu")
    in.leave("hidden_act", "legal: silu; swiglu stands");
  draft.set(kModel + "activation", "swiglu");
  draft.set(kModel + "ffn_bias", false);
  draft.set(kModel + "attention_bias", yes(in.take("attention_bias"), type == "qwen2_moe"));
  if (type == "qwen2_moe" || yes(in.take("attention_bias")))
    draft.note("attention_bias: all four projections have one here; in the model the last may not");
  draft.set(kModel + "tie_embeddings", yes(in.take("tie_word_embeddings")));
  if (type == "qwen3_moe") draft.set(kModel + "qk_norm", true);
  if (type == "olmoe")
    draft.leave("config.json: OLMoE's norm of queries and keys over all heads",
                "qk_norm here is per head");
  if (const Json::Value& dtype = in.take("torch_dtype"); dtype.isString()) {
    const std::string name = dtype.asString();
    draft.set("training_config.dtype", name == "bfloat16"  ? "bf16"
                                       : name == "float16" ? "fp16"
                                                           : "fp32");
  }
  if (const Json::Value& window = in.take("sliding_window"); window.isNumeric())
    in.leave("sliding_window", "attention sees the whole sequence");
  if (const Json::Value& dropout = in.take("attention_dropout");
      dropout.isNumeric() && dropout.asDouble() > 0)
    in.leave("attention_dropout", "attention weights are not dropped here");
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
  // Layer i is MoE where (i + 1) % step == 0, as here.
  in.take("decoder_sparse_step", kMoe + "moe_every_k_layers");
  if (const Json::Value& dense = in.take("mlp_only_layers"); dense.isArray() && !dense.empty())
    in.leave("mlp_only_layers", "legal: none; these layers are MoE here");
  if (const Json::Value& first = in.take("first_k_dense_replace");
      first.isNumeric() && first.asInt() > 0)
    in.leave("first_k_dense_replace", "the first layers are MoE here as well");
  in.take("shared_expert_intermediate_size", kMoe + "shared_expert_hidden_size");
  if (type == "qwen2_moe")
    draft.leave("config.json: the shared expert's sigmoid gate", "its output is added as it is");
  if (const Json::Value& shared = in.take("n_shared_experts"); shared.isNumeric())
    draft.set(kMoe + "shared_expert_hidden_size",
              Json::Int64(shared.asInt64() * in.take("moe_intermediate_size").asInt64()));
}

void take_routing(JsonMembers& in, ScenarioDraft& draft, const std::string& type) {
  const Json::Value& norm = in.take("norm_topk_prob");
  draft.set("routing.normalize_weights", type == "mixtral" || yes(norm) ? 1 : 0);
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
  if (const Json::Value& method = in.take("topk_method");
      method.isString() && method.asString() == "noaux_tc")
    draft.set(kMoe + "bias_update_rate", 0.001);
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
  take_transformer(in, *draft, kind);
  take_sizes(in, *draft, kind);
  take_routing(in, *draft, kind);
  in.leave_rest("no counterpart");
}

}  // namespace moetwin
