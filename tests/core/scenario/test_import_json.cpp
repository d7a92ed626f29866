// ds_config.json and config.json as parts of a scenario.

#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "core/scenario/import_json.h"
#include "core/scenario/read.h"

using namespace moetwin;
using Catch::Matchers::Contains;

namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

const char* const kDeepSpeed = R"({
  "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "auto",
  "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.98], "eps": 1e-9,
                "weight_decay": 0.1, "torch_adam": true}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 900, "warmup_num_steps": 90,
                "cos_min_ratio": 0.05, "warmup_min_ratio": 0.0}},
  "gradient_clipping": 0.5,
  "fp16": {"enabled": true, "initial_scale_power": 12, "loss_scale_window": 500},
  "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 5e8,
                        "allgather_partitions": true},
  "expert_parallel": {"enabled": true, "autoep_size": 4, "top_k": 2, "score_func": "sigmoid",
                      "route_norm": true, "use_grouped_mm": true},
  "steps_per_print": 10, "wall_clock_breakdown": false})";

const char* const kMixtral = R"({
  "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 512,
  "intermediate_size": 1792, "num_hidden_layers": 6, "num_attention_heads": 8,
  "num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000,
  "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
  "hidden_act": "silu", "router_aux_loss_coef": 0.02, "output_router_logits": false,
  "router_jitter_noise": 0.01, "sliding_window": null, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "attention_dropout": 0.0, "use_cache": true})";

}  // namespace

TEST_CASE("the two kinds of files are told apart by their keys") {
  CHECK(json_kind(kDeepSpeed) == "deepspeed");
  CHECK(json_kind(kMixtral) == "huggingface");
  CHECK(json_kind("{\"a\": 1}").empty());
}

TEST_CASE("a model from config.json and its training from ds_config.json make one scenario") {
  ScenarioDraft draft;
  import_huggingface(kMixtral, "config.json", &draft);
  import_deepspeed(kDeepSpeed, "ds_config.json", &draft);
  draft.set("distributed_config.world_size", 16);
  draft.set("distributed_config.data_parallel_size", 4);
  draft.set("data.format", "synthetic");
  const ImportedScenario result = draft.finish("config.json");
  INFO(result.problems << result.text);
  REQUIRE(result.problems.empty());
  const Scenario s = parse_scenario(result.text, "x.json");
  const ModelConfig& m = s.model_config;
  const MoeLayerConfig& moe = m.moe_layer_config;
  CHECK(m.hidden_size == 512);
  CHECK(m.num_layers == 6);
  CHECK(m.num_key_value_heads == 2);
  CHECK(m.norm_epsilon == 1e-6);
  CHECK(m.rotary_base == 1e6);
  CHECK(m.normalization == "rmsnorm");
  CHECK_FALSE(m.attention_bias);
  CHECK_FALSE(m.tie_embeddings);
  CHECK(moe.num_experts == 8);
  CHECK(moe.expert_hidden_size == 1792);
  CHECK(moe.expert_activation == "swiglu");
  CHECK(moe.aux_loss_factor == Approx(0.04));  // balanced is k there, 1 here
  CHECK(s.routing.normalize_weights == 1);     // Mixtral: always
  CHECK(s.routing.jitter_epsilon == 0.01);
  CHECK(s.routing.score_function == "sigmoid");
  const TrainingConfig& t = s.training_config;
  CHECK(t.global_batch_size == 64);
  CHECK(t.micro_batch_size == 2);
  CHECK(t.learning_rate == 3e-4);
  CHECK(t.beta2 == 0.98);
  CHECK(t.adam_epsilon == 1e-9);
  CHECK(t.max_grad_norm == 0.5);
  CHECK(t.schedule.kind == "cosine");
  CHECK(t.schedule.warmup_steps == 90);
  CHECK(t.schedule.decay_steps == 900);
  CHECK(t.schedule.min_ratio == 0.05);
  CHECK(t.dtype == "fp16");  // the later file wins
  CHECK(t.loss_scaling.initial_scale == 4096);
  CHECK(t.loss_scaling.growth_interval_steps == 500);
  CHECK(t.loss_scaling.hysteresis == 2);  // DeepSpeed's default
  CHECK(s.distributed_config.zero_stage == 2);
  CHECK(s.distributed_config.expert_parallel_size == 4);
  CHECK(s.distributed_config.comm_optimization.gradient_bucket_bytes == 2000000000);
  CHECK(s.output.log_every == 10);
  const std::string left = joined(result.left_out);
  for (const char* line :
       {"config.json: architectures = [\"MixtralForCausalLM\"]", "config.json: use_cache = true",
        "ds_config.json: gradient_accumulation_steps = \"auto\"",
        "ds_config.json: optimizer.params.torch_adam = true",
        "ds_config.json: scheduler.params.warmup_min_ratio = 0",
        "ds_config.json: zero_optimization.allgather_partitions = true",
        "ds_config.json: expert_parallel.use_grouped_mm = true",
        "ds_config.json: wall_clock_breakdown = false"})
    CHECK_THAT(left, Contains(line));
  CHECK_THAT(joined(result.notes), Contains("router_aux_loss_coef 0.02 x top-k 2") &&
                                       Contains("output_router_logits is not true"));
}

namespace {

/// The scenario of a ds_config.json over Mixtral, with what is left out and noted.
std::pair<Scenario, std::string> with_deepspeed(const std::string& config) {
  ScenarioDraft draft;
  import_huggingface(kMixtral, "config.json", &draft);
  import_deepspeed(config, "ds.json", &draft);
  draft.set("distributed_config.world_size", 4);
  draft.set("distributed_config.data_parallel_size", 4);
  draft.set("data.format", "synthetic");
  const ImportedScenario result = draft.finish("config.json");
  INFO(result.problems << result.text);
  REQUIRE(result.problems.empty());
  return {parse_scenario(result.text, "x.json"), joined(result.left_out) + joined(result.notes)};
}

}  // namespace

TEST_CASE("ds_config.json: offload, types on the wire, and DeepSpeed's own defaults") {
  auto [s, said] = with_deepspeed(R"({"train_batch_size": 8, "bf16": {"enabled": true},
    "communication_data_type": "bf16", "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu", "pin_memory": true},
                          "offload_optimizer": {"device": "cpu"}}})");
  CHECK(s.distributed_config.zero_stage == 3);
  CHECK(s.distributed_config.fsdp.cpu_offload);
  CHECK(s.distributed_config.fsdp.mixed_precision.reduce_dtype == "bf16");
  CHECK(s.training_config.dtype == "bf16");
  CHECK(s.training_config.beta2 == 0.999);
  CHECK(s.training_config.weight_decay == 0);
  CHECK(s.training_config.max_grad_norm == 0);
  CHECK_THAT(said, Contains("max_grad_norm 0: DeepSpeed does not clip") &&
                       Contains("offload_param.pin_memory"));

  std::tie(s, said) = with_deepspeed(R"({"train_batch_size": 8, "communication_data_type": "fp16",
    "fp16": {"enabled": true, "loss_scale": 128}, "gradient_clipping": 0.25,
    "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"},
                          "mics_shard_size": 2}})");
  CHECK(s.distributed_config.zero_stage == 1);
  CHECK_FALSE(s.distributed_config.fsdp.cpu_offload);
  CHECK(s.training_config.loss_scaling.mode == "static");
  CHECK(s.training_config.loss_scaling.initial_scale == 128);
  CHECK(s.training_config.max_grad_norm == 0.25);
  for (const char* line : {"offload_optimizer.device = \"cpu\" (legal: fsdp.cpu_offload",
                           "communication_data_type = \"fp16\" (legal with sharded gradients",
                           "mics_shard_size = 2 (legal: fsdp.sharding_strategy HYBRID_SHARD"})
    CHECK_THAT(said, Contains(line));
}

TEST_CASE("Qwen3-MoE and OLMoE keep raw or normalised weights as their files say") {
  const auto routed = [](const char* text) {
    ScenarioDraft draft;
    import_huggingface(text, "config.json", &draft);
    const ImportedScenario result = draft.finish("config.json");
    INFO(result.problems);
    REQUIRE(result.problems.empty());
    return std::make_pair(parse_scenario(result.text, "x.json"), joined(result.left_out));
  };
  const auto [qwen, qwen_left] = routed(R"({"model_type": "qwen3_moe", "hidden_size": 64,
    "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 32, "num_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 48, "intermediate_size": 128,
    "decoder_sparse_step": 2, "mlp_only_layers": [1], "norm_topk_prob": true, "vocab_size": 256})");
  CHECK(qwen.model_config.qk_norm);
  CHECK(qwen.model_config.head_dim == 32);
  CHECK(qwen.model_config.ffn_hidden_size == 128);
  CHECK(qwen.model_config.moe_layer_config.expert_hidden_size == 48);
  CHECK(qwen.model_config.moe_layer_config.moe_every_k_layers == 2);
  CHECK(qwen.routing.normalize_weights == 1);
  CHECK_THAT(qwen_left, Contains("mlp_only_layers = [1]"));
  const auto [olmoe, olmoe_left] = routed(R"({"model_type": "olmoe", "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_experts": 8, "num_experts_per_tok": 2,
    "intermediate_size": 32, "norm_topk_prob": false, "vocab_size": 256})");
  CHECK(olmoe.routing.normalize_weights == 0);
  CHECK(olmoe.model_config.moe_layer_config.expert_hidden_size == 32);
  CHECK(olmoe.model_config.qk_norm);
  CHECK(olmoe.model_config.qk_norm_over == "projection");
}

TEST_CASE("a model of another kind, and what is no JSON, are refused") {
  ScenarioDraft draft;
  CHECK_THROWS_WITH(import_huggingface("{\"model_type\": \"llama\"}", "config.json", &draft),
                    Contains("config.json") && Contains("\"llama\"") && Contains("legal: mixtral"));
  CHECK_THROWS_WITH(import_deepspeed("[1]", "ds.json", &draft), Contains("ds.json"));
  CHECK_THROWS_WITH(import_deepspeed("{", "ds.json", &draft), Contains("no JSON object"));
}
