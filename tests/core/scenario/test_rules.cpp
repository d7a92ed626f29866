#include <catch2/catch.hpp>

#include "core/scenario/rules.h"
#include "tests/core/scenario/texts.h"

using namespace moetwin;
using Catch::Matchers::Contains;

namespace {

std::string moe(const std::string& keys) {
  return "{\"model_config\": {\"moe_layer_config\": {\"num_experts\": 8, " + keys + "}}}";
}

}  // namespace

TEST_CASE("head counts divide") {
  CHECK_THAT(
      refusal(R"({"model_config": {"hidden_size": 100, "num_attention_heads": 3}})"),
      Contains("test.json:1: model_config.num_attention_heads: num_attention_heads 3 does not "
               "divide hidden_size 100 (rest 1)") &&
          Contains("legal num_attention_heads: 1, 2, 4, 5, 10, 20, 25, 50, 100"));
  CHECK(
      refusal(
          R"({"model_config": {"hidden_size": 100, "num_attention_heads": 3, "head_dim": 32}})") ==
      "accepted");
  CHECK_THAT(refusal(R"({"model_config": {"num_attention_heads": 4, "num_key_value_heads": 3}})"),
             Contains("num_key_value_heads 3 does not divide num_attention_heads 4") &&
                 Contains("1, 2, 4"));
  CHECK_THAT(refusal(R"({"model_config": {"hidden_size": 12, "num_attention_heads": 4,
                         "position_embedding": "rotary"}})"),
             Contains("the head width is 3 (hidden_size 12 / num_attention_heads 4)"));
}

TEST_CASE("latent attention, norms over the projection and YaRN say what they need") {
  const auto latent = [](const std::string& more) {
    return R"({"model_config": {"attention": "multi_head_latent", "position_embedding": "rotary",
      "attention_bias": false)" +
           more + "}}";
  };
  CHECK(refusal(latent("")) == "accepted");
  CHECK_THAT(refusal(R"({"model_config": {"attention": "multi_head_latent"}})"),
             Contains("position_embedding learned") && Contains("legal: rotary"));
  CHECK_THAT(refusal(latent(R"(, "latent_attention": {"qk_rope_head_dim": 3})")),
             Contains("qk_rope_head_dim 3") && Contains("an even width"));
  CHECK_THAT(refusal(latent(R"(, "num_key_value_heads": 2)")),
             Contains("num_key_value_heads 2") && Contains("legal: 0"));
  CHECK_THAT(refusal(latent(R"(, "qk_norm": true)")), Contains("qk_norm true"));
  CHECK_THAT(refusal(latent(R"(, "head_dim": 64)")), Contains("head_dim 64"));
  CHECK_THAT(refusal(R"({"model_config": {"qk_norm": true, "qk_norm_over": "projection",
                         "num_attention_heads": 4, "num_key_value_heads": 2}})"),
             Contains("num_key_value_heads 2 of 4 heads"));
  CHECK_THAT(refusal(R"({"model_config": {"qk_norm": true, "qk_norm_over": "projection"},
                         "distributed_config": {"world_size": 2, "tensor_parallel_size": 2}})"),
             Contains("tensor_parallel_size 2") && Contains("legal tensor_parallel_size: 1"));
  CHECK_THAT(refusal(R"({"model_config": {"rotary_scaling": "yarn"}})"),
             Contains("rotary_scaling yarn with position_embedding learned"));
  CHECK_THAT(refusal(latent(R"(, "rotary_scaling": "yarn", "yarn": {"beta_slow": 40})")),
             Contains("yarn.beta_fast 32 is not above yarn.beta_slow 40"));
}

TEST_CASE("the first layers may be dense, but not all") {
  CHECK(refusal(moe("\"first_dense_layers\": 3")) == "accepted");
  CHECK_THAT(refusal(moe("\"first_dense_layers\": 4")),
             Contains("the first 4 are dense") && Contains("first_dense_layers of at most 3"));
}

TEST_CASE("top_k is at most num_experts, both shown") {
  CHECK_THAT(refusal(moe("\"top_k\": 9")), Contains("top_k 9 exceeds num_experts 8") &&
                                               Contains("legal top_k: 1 to 8") &&
                                               Contains("num_experts of at least 9"));
  CHECK(refusal(moe("\"top_k\": 8")) == "accepted");
  CHECK_THAT(refusal(moe("\"moe_every_k_layers\": 5")),
             Contains("moe_every_k_layers 5 exceeds num_layers 4") && Contains("legal: 1 to 4"));
}

TEST_CASE("the global batch is a multiple of what the ranks take at once") {
  const std::string text = R"({
    "distributed_config": {"world_size": 8, "data_parallel_size": 4, "expert_parallel_size": 2},
    "model_config": {"moe_layer_config": {"num_experts": 8}},
    "training_config": {"global_batch_size": 24, "micro_batch_size": 2}})";
  // Dense data parallel size is DP 4 x EP 2 = 8, times 2 is 16; 24 / 8 = 3 sequences a rank.
  CHECK_THAT(
      refusal(text),
      Contains("test.json:4: training_config.global_batch_size: global_batch_size 24 is not a "
               "multiple of dense data parallel size 8 x micro_batch_size 2 = 16") &&
          Contains("legal global_batch_size: 16, 32, 48, ...; or micro_batch_size: 1, 3"));
  CHECK(refusal(text, {"training_config.global_batch_size=32"}) == "accepted");
  // Left out, it is the least multiple that is at least 8.
  CHECK(parse_scenario("{}", "t.json", {"training_config.micro_batch_size=3"})
            .training_config.global_batch_size == 9);
}

TEST_CASE("process sizes are checked with place and experts", "[P013]") {
  const std::string text = R"({
    "model_config": {"moe_layer_config": {"num_experts": 8}},
    "distributed_config": {
      "world_size": 3,
      "expert_parallel_size": 3}})";
  CHECK_THAT(refusal(text), Contains("test.json:5: distributed_config.expert_parallel_size: ") &&
                                Contains("8 mod 3 = 2"));
  CHECK_THAT(refusal(R"({"distributed_config": {"world_size": 4}})"),
             Contains("test.json:1: distributed_config.world_size") &&
                 Contains("= 1, but world_size is 4") && Contains("or data_parallel_size 4"));
}

TEST_CASE("errors of values and of rules come together, and one does not breed another") {
  const std::string message = refusal(R"({
    "model_config": {"hidden_size": "wide", "moe_layer_config": {"num_experts": 4, "top_k": 5}},
    "distributed_config": {"world_size": 2},
    "memory": {"on_exceed": "report"}})");
  CHECK_THAT(message, Contains("4 errors") && Contains("hidden_size: \"wide\"") &&
                          Contains("top_k 5 exceeds") && Contains("but world_size is 2") &&
                          Contains("report needs training_config.numerics none"));
}

TEST_CASE("group-limited routing leaves enough experts") {
  const auto with = [](int groups, int kept, int k) {
    return refusal(moe("\"top_k\": " + std::to_string(k)),
                   {"routing.groups=" + std::to_string(groups),
                    "routing.kept_groups=" + std::to_string(kept)});
  };
  CHECK_THAT(with(3, 1, 2), Contains("groups 3 does not divide num_experts 8 (rest 2)"));
  CHECK_THAT(with(4, 5, 2), Contains("kept_groups 5 exceeds groups 4"));
  CHECK_THAT(with(4, 1, 3),
             Contains("kept_groups 1 x 2 experts a group = 2 experts to choose from, "
                      "fewer than top_k 3; legal kept_groups: 2 to 4"));
  CHECK(with(4, 2, 3) == "accepted");
}

TEST_CASE("what a rank has of a sequence counts, not all of it") {
  // 2^20 sequences of 2048 tokens, two experts each: 2^32 assignments; of a quarter of them 2^30.
  const auto with = [](int64_t cp) {
    return refusal(
        R"({"distributed_config": {"world_size": 4, "data_parallel_size": 4}})",
        {"distributed_config.context_parallel_size=" + std::to_string(cp),
         "model_config.sequence_length=2048", "model_config.moe_layer_config.num_experts=8",
         "model_config.moe_layer_config.top_k=2", "training_config.micro_batch_size=1048576",
         "training_config.numerics=none"});
  };
  CHECK_THAT(with(1), Contains("4294967296 assignments"));
  CHECK_THAT(with(2), Contains("sequence_length 2048 / context_parallel_size 2 x top_k 2 = "
                               "2147483648 assignments"));
  CHECK(with(4) == "accepted");
}

TEST_CASE("context parallelism needs equal chunks, and numerics off", "[P004]") {
  const auto with = [](int64_t cp, const std::string& exchange, int64_t sequence,
                       const std::string& numerics) {
    return refusal(R"({"distributed_config": {"world_size": 8, "data_parallel_size": 8}})",
                   {"distributed_config.context_parallel_size=" + std::to_string(cp),
                    "distributed_config.context_parallel_exchange=" + exchange,
                    "model_config.sequence_length=" + std::to_string(sequence),
                    "model_config.num_attention_heads=8", "model_config.num_key_value_heads=2",
                    "training_config.numerics=" + numerics});
  };
  CHECK_THAT(with(2, "p2p", 128, "full"),
             Contains("context_parallel_size 2 with training_config.numerics full") &&
                 Contains("legal: 1, or numerics none"));
  CHECK(with(2, "p2p", 128, "none") == "accepted");
  CHECK_THAT(with(4, "all_gather", 12, "none"),
             Contains("8 equal chunks (two a rank") && Contains("leaves a rest of 4"));
  CHECK(with(2, "a2a", 6, "none") == "accepted");
  CHECK_THAT(with(4, "a2a", 128, "none"),
             Contains("2 key-value heads") && Contains("legal context_parallel_size: 1, 2;"));
}

TEST_CASE("a capacity factor of 16384 is refused with the bytes it would take", "[P067]") {
  const std::string text = R"({"model_config": {"hidden_size": 512, "sequence_length": 4096,
      "moe_layer_config": {"num_experts": 64, "top_k": 2, "capacity_factor": 16384}}})";
  // ceil(16384 x 4096 x 2 / 64) = 2,097,152 places; x 64 x 512 x 4 bytes = 2^38 = 256 GiB.
  CHECK_THAT(refusal(text), Contains("2097152 places for each of 64 experts, of 4096 tokens") &&
                                Contains("256.00 GiB") && Contains("num_experts / top_k = 32"));
  CHECK_THAT(refusal(moe("\"capacity_factor\": 0")), Contains("must be a number above 0, or null"));
}

TEST_CASE("absurd weights are refused with an estimate", "[P067]") {
  CHECK_THAT(refusal(R"({"model_config": {"hidden_size": 1048576, "num_layers": 65536,
                         "moe_layer_config": {"num_experts": 65536}}})"),
             Contains("the weights would take") && Contains("PiB in all") &&
                 Contains("legal: at most 4.00 PiB"));
}

TEST_CASE("a coefficient without its loss is told", "[P082]") {
  CHECK_THAT(
      warnings_of(R"({"model_config": {"moe_layer_config": {"aux_loss_factor": 0.01}}})"),
      Contains("aux_loss_factor: coefficient set but loss off: aux_loss_factor 0.01 without MoE "
               "layers"));
  CHECK_THAT(warnings_of("{}"), !Contains("coefficient"));
  CHECK_THAT(warnings_of(moe("\"aux_loss_factor\": 0.01"), {"routing.source=W1"}),
             Contains("coefficient set but loss off") && Contains("routing.source W1"));
  CHECK_THAT(warnings_of(moe("\"aux_loss_factor\": 0.01")), !Contains("coefficient"));
}

TEST_CASE("allowed but probably not meant", "[P054]") {
  CHECK_THAT(warnings_of(moe("\"top_k\": 1"), {"routing.normalize_weights=1"}),
             Contains("normalize_weights 1 with top_k 1"));
  CHECK_THAT(warnings_of(moe("\"top_k\": 2, \"capacity_factor\": 4")),
             Contains("never drops a token: from num_experts 8 / top_k 2 = 4"));
  CHECK_THAT(warnings_of(moe("\"top_k\": 2, \"capacity_factor\": 3.99")), !Contains("never drops"));
  CHECK_THAT(warnings_of(moe("\"bias_update_delay_steps\": 2")),
             Contains("bias_update_delay_steps 2 and bias_count_ema 0 without bias_update_rate"));
  CHECK_THAT(warnings_of(moe("\"bias_count_ema\": 0.9, \"bias_update_rate\": 0.1")),
             !Contains("without bias_update_rate"));
  CHECK_THAT(
      warnings_of(moe("\"top_k\": 2"), {"routing.weight_delay_steps=1", "routing.source=W1"}),
      Contains("weight_delay_steps 1 without a learned router"));
  CHECK_THAT(warnings_of(moe("\"top_k\": 2"), {"routing.weight_delay_steps=1"}),
             !Contains("without a learned router"));
  CHECK_THAT(warnings_of("{}", {"model_config.embedding_offset=1"}),
             Contains("embedding_offset 1 with normalization layernorm changes nothing"));
  CHECK_THAT(
      warnings_of("{}", {"model_config.embedding_offset=1", "model_config.normalization=rmsnorm"}),
      !Contains("embedding_offset"));
  CHECK_THAT(warnings_of("{}"), Contains("no files given"));
  CHECK_THAT(warnings_of("{}", {"data.files=a.txt"}), !Contains("no files given"));
  CHECK_THAT(warnings_of("{}", {"training_config.numerics=none"}), !Contains("no files given"));
  CHECK_THAT(warnings_of(R"({"distributed_config": {"world_size": 2, "expert_parallel_size": 2}})"),
             Contains("without experts"));
}

TEST_CASE("memory, text, traces, workloads, ports and outputs") {
  CHECK(refusal(R"({"memory": {"on_exceed": "report"}})", {"training_config.numerics=none"}) ==
        "accepted");
  CHECK_THAT(refusal(R"({"model_config": {"vocab_size": 128}})"), Contains("legal: at least 256"));
  CHECK(refusal(R"({"model_config": {"vocab_size": 128}, "data": {"format": "tokens"}})") ==
        "accepted");
  CHECK_THAT(refusal(moe("\"top_k\": 2"), {"routing.source=W10"}), Contains("needs trace_file"));
  CHECK_THAT(refusal(moe("\"top_k\": 2"), {"routing.source=W1", "routing.workload.hot_experts=9"}),
             Contains("hot_experts 9 of num_experts 8"));
  CHECK_THAT(refusal(moe("\"top_k\": 2"), {"routing.source=W2", "routing.workload.hot_rank=1"}),
             Contains("hot_rank 1 of expert_parallel_size 1"));
  CHECK_THAT(refusal(moe("\"top_k\": 2"), {"routing.source=W5", "routing.workload.zero_experts=7"}),
             Contains("fewer than top_k 2; legal zero_experts: 0 to 6"));
  CHECK_THAT(refusal("{}", {"distributed_config.master_port=70000"}), Contains("1 to 65535"));
  CHECK(refusal("{}", {"distributed_config.master_port=29500"}) == "accepted");
  CHECK_THAT(refusal("{}", {"output.routing_ranks=[0,1]"}), Contains("rank 1 of world_size 1"));
  CHECK_THAT(refusal("{}", {"output.timeline_steps=101"}), Contains("step 101 of 100 steps"));
  CHECK(refusal("{}", {"profile.active=98"}) == "accepted");
  CHECK_THAT(refusal("{}", {"profile.active=99"}),
             Contains("wait 1 + warmup 1 + active 99 = 101 steps") && Contains("steps is 100"));
}

TEST_CASE("assignments of a micro-batch can be numbered in 32 bits", "[P070]") {
  const auto with = [](const char* micro_batch) {
    return refusal(R"({"model_config": {"sequence_length": 16777216,
                       "moe_layer_config": {"num_experts": 4, "top_k": 2}}})",
                   {std::string("training_config.micro_batch_size=") + micro_batch,
                    std::string("training_config.global_batch_size=") + micro_batch});
  };
  CHECK(with("63") == "accepted");
  CHECK_THAT(with("64"), Contains("micro_batch_size 64 x sequence_length 16777216 x top_k 2 = "
                                  "2147483648 assignments") &&
                             Contains("legal micro_batch_size: 1 to 63"));
}

TEST_CASE("unknown drop policies and balancing algorithms are refused with the legal ones",
          "[P064][P112]") {
  CHECK_THAT(refusal(moe("\"drop_policy\": \"prob\"")),
             Contains("\"prob\"") && Contains("position, probability"));
  // Sinkhorn would choose by the tokens of one rank: it is not offered.
  CHECK_THAT(refusal("{}", {"routing.source=sinkhorn"}), Contains("\"sinkhorn\""));
}

TEST_CASE("layers and heads divide over stages and tensor parallel ranks") {
  CHECK_THAT(refusal(R"({"distributed_config": {"world_size": 3, "pipeline_parallel_size": 3}})"),
             Contains("num_layers 4 does not divide over pipeline_parallel_size 3 (rest 1)"));
  CHECK_THAT(refusal(R"({"distributed_config": {"world_size": 8, "tensor_parallel_size": 8}})"),
             Contains("num_attention_heads 4 does not divide over tensor_parallel_size 8"));
}

TEST_CASE("tensor parallel ranks take equal slices of a sequence") {
  const auto with = [](const std::string& model, const std::string& distributed) {
    return refusal("{\"model_config\": {\"sequence_length\": 126, " + model +
                   "}, \"distributed_config\": {\"world_size\": 4, \"tensor_parallel_size\": 4" +
                   distributed + "}, \"training_config\": {\"global_batch_size\": 4}}");
  };
  const std::string experts = "\"moe_layer_config\": {\"num_experts\": 8}";
  CHECK(with("\"num_layers\": 4", "") == "accepted");  // dense, all tokens everywhere
  CHECK_THAT(with("\"num_layers\": 4", ", \"sequence_parallel\": true"),
             Contains("sequence_parallel gives every TP rank an equal slice of a sequence, but "
                      "sequence_length 126 does not divide over tensor_parallel_size 4 (rest 2); "
                      "legal tensor_parallel_size: 1, 2, 3, 6, 7, 9"));
  CHECK_THAT(with(experts, ""), Contains("the token exchange of MoE layers gives every TP rank"));
  CHECK_THAT(
      refusal(R"({"model_config": {"sequence_length": 12, "moe_layer_config": {"num_experts": 8}},
        "distributed_config": {"world_size": 4, "tensor_parallel_size": 4,
          "comm_optimization": {"all_to_all_overlap": true}},
        "training_config": {"global_batch_size": 4}})"),
      Contains("sequence_length 12 / tensor_parallel_size 4 = 3 tokens, into all_to_all_chunks 2 "
               "(rest 1); legal all_to_all_chunks: 1, 3"));
  CHECK_THAT(refusal(R"({"model_config": {"moe_layer_config": {"num_experts": 8,
        "shared_expert_hidden_size": 6}},
        "distributed_config": {"world_size": 4, "tensor_parallel_size": 4}})"),
             Contains("shared_expert_hidden_size 6 does not divide over tensor_parallel_size 4"));
}

TEST_CASE("fp64 is for the modelled GPU") {
  const Scenario s = parse_scenario("{}", "t.json", {"training_config.dtype=fp64"});
  CHECK_NOTHROW(check_backend(s, "sim"));
  CHECK_THROWS_WITH(check_backend(s, "cuda"), Contains("legal on cuda: fp32, bf16, fp16"));
}

TEST_CASE("sharding is named once, and goes with its offload and types") {
  const auto with = [](const std::string& distributed, const std::string& training = "") {
    return refusal("{\"distributed_config\": {" + distributed + "}, \"training_config\": {" +
                   training + "}}");
  };
  CHECK_THAT(with(R"("zero_stage": 1, "fsdp": {"sharding_strategy": "FULL_SHARD"})"),
             Contains("sharding_strategy FULL_SHARD is zero_stage 3, but zero_stage is 1"));
  CHECK_THAT(with(R"("zero_stage": 3, "fsdp": {"sharding_strategy": "HYBRID_SHARD"})"),
             Contains("sharding_strategy HYBRID_SHARD is no stage of ZeRO"));
  CHECK(with(R"("zero_stage": 3, "fsdp": {"sharding_strategy": "FULL_SHARD"})") == "accepted");
  CHECK(with(R"("zero_stage": 0, "fsdp": {"sharding_strategy": "HYBRID_SHARD"})") == "accepted");
  CHECK_THAT(with(R"("zero_stage": 1, "fsdp": {"cpu_offload": true})"),
             Contains("cpu_offload with SHARD_OPTIMIZER") && Contains("FULL_SHARD"));
  CHECK(with(R"("zero_stage": 2, "fsdp": {"cpu_offload": true})") == "accepted");
  CHECK_THAT(with(R"("fsdp": {"mixed_precision": {"param_dtype": "bf16"}})", R"("dtype": "fp16")"),
             Contains("param_dtype bf16 with training_config.dtype fp16"));
  CHECK_THAT(with(R"("fsdp": {"mixed_precision": {"reduce_dtype": "bf16"}})"),
             Contains("reduce_dtype bf16 with NO_SHARD") && Contains("legal: fp32"));
  CHECK_THAT(with(R"("zero_stage": 3, "fsdp": {"mixed_precision": {"reduce_dtype": "bf16"}})",
                  R"("dtype": "fp64")"),
             Contains("reduce_dtype bf16 with training_config.dtype fp64"));
  CHECK_THAT(with(R"("fsdp": {"sharding_strategy": "SHARD"})"),
             Contains("NO_SHARD, SHARD_OPTIMIZER, SHARD_GRAD_OP, FULL_SHARD"));
  CHECK_THAT(with("", R"("recompute_modules": ["mlp"])"),
             Contains("a list of texts, each one of: attention_core, expert_activation"));
  // Where dtype is left out, param_dtype says it.
  CHECK(parse_scenario(R"({"distributed_config": {"fsdp": {"mixed_precision":
                           {"param_dtype": "fp16", "reduce_dtype": "fp32"}}}})",
                       "t.json")
            .training_config.dtype == "fp16");
}

TEST_CASE("rebalancing says what it does not go with") {
  const auto of = [](const std::string& kind, const std::string& distributed,
                     const std::string& more = "") {
    return R"({"model_config": {"moe_layer_config": {"num_experts": 8}}, "distributed_config": {)" +
           distributed + R"(}, "rebalancing": {"kind": ")" + kind + "\"" + more + "}}";
  };
  const std::string ep = R"("world_size": 4, "expert_parallel_size": 4)";
  for (const char* kind : {"placement", "shadowing", "spill"})
    CHECK(refusal(of(kind, ep)) == "accepted");
  CHECK(refusal(of("replication", ep, R"(, "redundant_experts": 8)")) == "accepted");
  CHECK_THAT(refusal(of("spill", R"("world_size": 1)")),
             Contains("expert_parallel_size is 1") && Contains("legal expert_parallel_size"));
  CHECK_THAT(refusal(of("spill", R"("world_size": 16, "expert_parallel_size": 16)")),
             Contains("expert_parallel_size is 16 and num_experts 8"));
  CHECK_THAT(refusal(of("spill", R"("world_size": 8, "expert_parallel_size": 4,
                                    "tensor_parallel_size": 2)")),
             Contains("expert_tensor_parallel_size is 2") && Contains("legal with rebalancing"));
  CHECK_THAT(refusal(of("shadowing", ep + R"(, "zero_stage": 3)")),
             Contains("legal with rebalancing"));
  CHECK(refusal(of("shadowing", ep + R"(, "zero_stage": 1)")) == "accepted");
  CHECK_THAT(refusal(of("placement", ep + R"(, "zero_stage": 1)")),
             Contains("legal with placement: NO_SHARD, or zero_stage 0"));
  CHECK_THAT(refusal(of("spill", R"("world_size": 8, "expert_parallel_size": 4,
                                    "pipeline_parallel_size": 2, "pipeline_schedule": "zb_h1")")),
             Contains("zb_h1") && Contains("legal with rebalancing"));
  CHECK_THAT(refusal(of("spill", ep + R"(, "comm_optimization": {"micro_batch_overlap": true})")),
             Contains("micro_batch_overlap"));
  for (const char* n : {"0", "6", "28"})
    CHECK_THAT(refusal(of("replication", ep, std::string(R"(, "redundant_experts": )") + n)),
               Contains("multiples of 4 from 4 to 24"));
}
