#include <catch2/catch.hpp>
#include <cmath>

#include "core/scenario/model_size.h"
#include "tests/core/scenario/texts.h"

using namespace moetwin;

TEST_CASE("parameters of a small model, counted by hand") {
  Scenario s;
  ModelConfig& m = s.model_config;
  m.hidden_size = 6, m.num_layers = 3, m.num_attention_heads = 2, m.vocab_size = 10;
  m.sequence_length = 5, m.ffn_hidden_size = 7;
  m.moe_layer_config.num_experts = 4, m.moe_layer_config.moe_every_k_layers = 2;
  m.moe_layer_config.expert_hidden_size = 8, m.moe_layer_config.top_k = 3;
  // Layer 1 of 0, 1, 2 is the MoE layer.
  ParameterCount n = model_parameters(s);
  CHECK(n.embedding == 10 * 6 + 5 * 6);
  CHECK(n.head == 0);
  CHECK(n.attention == 3 * ((6 * 18 + 18) + (6 * 6 + 6)));
  CHECK(n.norm == 3 * 2 * 12 + 12);
  CHECK(n.dense_ffn == 2 * (6 * 7 + 7 + 7 * 6 + 6));
  CHECK(n.router == 6 * 4);
  CHECK(n.expert == 4 * (6 * 8 + 8 + 8 * 6 + 6));
  CHECK(n.total() == n.embedding + n.attention + n.norm + n.dense_ffn + n.router + n.expert);
  CHECK(active_parameters(s).expert == 3 * (6 * 8 + 8 + 8 * 6 + 6));
  CHECK(active_parameters(s).dense() == n.dense());

  m.tie_embeddings = false, m.position_embedding = "rotary", m.normalization = "rmsnorm";
  m.attention_bias = m.ffn_bias = m.moe_layer_config.expert_bias = false, m.qk_norm = true;
  m.num_key_value_heads = 1, m.activation = m.moe_layer_config.expert_activation = "swiglu";
  m.moe_layer_config.shared_expert_hidden_size = 9, m.moe_layer_config.dense_ffn_beside_moe = true;
  n = model_parameters(s);
  CHECK(n.embedding == 10 * 6);
  CHECK(n.head == 10 * 6);
  CHECK(n.attention == 3 * (6 * (6 + 3 + 3) + 6 * 6 + 2 * 3));
  CHECK(n.norm == 3 * 2 * 6 + 6);
  CHECK(n.dense_ffn == 3 * 3 * 6 * 7);
  CHECK(n.shared_expert == 3 * 6 * 9);
  CHECK(n.router == 6 * 4);
  s.routing.source = "W1";
  CHECK(model_parameters(s).router == 0);
  CHECK(n.expert == 4 * 3 * 6 * 8);
}

TEST_CASE("a rank holds its stage, its share of matrices and its experts") {
  Scenario s;
  ModelConfig& m = s.model_config;
  m.hidden_size = 8, m.num_layers = 4, m.num_attention_heads = 2, m.vocab_size = 10;
  m.sequence_length = 5, m.moe_layer_config.num_experts = 2;
  m.moe_layer_config.moe_every_k_layers = 2, m.moe_layer_config.expert_hidden_size = 12;
  DistributedConfig d;
  d.world_size = 16, d.expert_parallel_size = 4, d.tensor_parallel_size = 2;
  d.pipeline_parallel_size = 2;
  const ParallelSizes sizes = parallel_sizes(d, 2);
  REQUIRE(sizes.hidden_sharding == 2);
  const ParameterCount first = rank_parameters(s, sizes, 0, 0);
  const ParameterCount last = rank_parameters(s, sizes, 1, 1);
  CHECK(first.embedding == 5 * 8 + 5 * 8);  // half of 10 rows, all positions
  CHECK(first.head == 0);
  CHECK(last.embedding == 0);
  CHECK(last.head == 5 * 8);  // the tied table again, on the last stage
  CHECK(first.attention == 2 * ((8 * 12 + 12) + (4 * 8 + 8)));
  CHECK(first.norm == 2 * 2 * 16);
  CHECK(last.norm == 2 * 2 * 16 + 16);
  CHECK(first.dense_ffn == 8 * 16 + 16 + 16 * 8 + 8);
  CHECK(first.router == 8 * 2);
  // Width 12 over hidden sharding 2 and expert-TP 2 is 3; the second bias is on hidden row 0.
  CHECK(first.expert == 8 * 3 + 3 + 3 * 8 + 8);
  CHECK(last.expert == 8 * 3 + 3 + 3 * 8);
}

TEST_CASE("without splitting a rank holds the whole model, and EP shares add up to it") {
  Scenario s = parse_scenario(kSeedScenario, "seed.json");
  const ParameterCount all = model_parameters(s);
  DistributedConfig d;
  CHECK(rank_parameters(s, parallel_sizes(d, 64), 0, 0).total() == all.total());
  d.world_size = d.expert_parallel_size = 8;
  CHECK(8 * rank_parameters(s, parallel_sizes(d, 64), 0, 0).expert == all.expert);
}

TEST_CASE("the model of seed 001 needs 1.2 TB a GPU at EP 2 and 0.3 TB at EP 8") {
  Scenario s = parse_scenario(kSeedScenario, "seed.json");
  const double h = 4096, f = 4 * 4096;
  const double expert = 64 * 16 * (2 * h * f + f + h);
  CHECK(double(model_parameters(s).expert) == expert);
  ParallelSizes sizes = parallel_sizes(s.distributed_config, 64);
  ParameterCount rank = rank_parameters(s, sizes, 0, 0);
  CHECK(double(expert_state_bytes(s, sizes, rank).total()) == expert / 2 * 16);
  StateBytes sum = dense_state_bytes(s, sizes, rank);
  sum += expert_state_bytes(s, sizes, rank);
  CHECK(double(sum.total()) / 1e12 == Approx(1.17).margin(0.005));
  s.distributed_config.data_parallel_size = 2, s.distributed_config.expert_parallel_size = 8;
  sizes = parallel_sizes(s.distributed_config, 64);
  rank = rank_parameters(s, sizes, 0, 0);
  // Expert memory goes down 4x from EP 2 to EP 8.
  CHECK(double(expert_state_bytes(s, sizes, rank).total()) == expert / 8 * 16);
}

TEST_CASE("ZeRO-1 shards the optimizer state over the copies there are", "[P011]") {
  Scenario s = parse_scenario(kSeedScenario, "seed.json");
  s.distributed_config.zero_stage = 1;
  const ParallelSizes sizes = parallel_sizes(s.distributed_config, 64);
  const ParameterCount rank = rank_parameters(s, sizes, 0, 0);
  const int64_t dense = rank.dense(), expert = rank.expert;
  CHECK(dense_state_bytes(s, sizes, rank).optimizer == 8 * ((dense + 15) / 16));
  CHECK(expert_state_bytes(s, sizes, rank).optimizer == 8 * ((expert + 7) / 8));
  CHECK(expert_state_bytes(s, sizes, rank).weights == 4 * expert);
  // With one copy of each expert its state is not sharded further.
  s.distributed_config.data_parallel_size = 1, s.distributed_config.expert_parallel_size = 16;
  const ParallelSizes single = parallel_sizes(s.distributed_config, 64);
  const ParameterCount one = rank_parameters(s, single, 0, 0);
  CHECK(expert_state_bytes(s, single, one).optimizer == 8 * one.expert);
}

TEST_CASE("sharding spreads weights and gradients too, and offload takes them off the GPU") {
  Scenario s = parse_scenario(kSeedScenario, "seed.json");  // DP 8 x EP 2
  s.distributed_config.zero_stage = 3;
  const ParallelSizes sizes = parallel_sizes(s.distributed_config, 64);
  const ParameterCount rank = rank_parameters(s, sizes, 0, 0);
  // fp32: 4 + 4 + 8 bytes over 8 copies of each expert.
  CHECK(expert_state_bytes(s, sizes, rank).total() == 16 * ((rank.expert + 7) / 8));
  // On a node of 8 GPUs EP 2 leaves 4 copies.
  s.distributed_config.zero_stage = 0;
  s.distributed_config.fsdp.sharding_strategy = "HYBRID_SHARD";
  CHECK(expert_state_bytes(s, sizes, rank, 8).total() == 16 * ((rank.expert + 3) / 4));
  CHECK(dense_shards(s, sizes, 8) == 8);
  // bf16 weights are made from the fp32 master when they are gathered.
  s.training_config.dtype = "bf16";
  CHECK(expert_state_bytes(s, sizes, rank, 8).weights == 0);
  CHECK(expert_state_bytes(s, sizes, rank, 8).total() == 16 * ((rank.expert + 3) / 4));
  s.distributed_config.fsdp.cpu_offload = true;
  CHECK(expert_state_bytes(s, sizes, rank, 8).total() == 4 * ((rank.expert + 3) / 4));
}

TEST_CASE("bytes for a parameter by dtype and optimizer") {
  TrainingConfig t;
  const auto bytes = [&t](const char* dtype, const char* optimizer) {
    t.dtype = dtype, t.optimizer = optimizer;
    const BytesPerParameter b = bytes_per_parameter(t);
    return b.weight * 10000 + b.gradient * 100 + b.optimizer;
  };
  CHECK(bytes("fp32", "adamw") == 40408);
  CHECK(bytes("fp32", "sgd") == 40400);
  CHECK(bytes("fp64", "adamw") == 80816);
  CHECK(bytes("bf16", "adamw") == 20412);
  CHECK(bytes("fp16", "sgd") == 20404);
}

TEST_CASE("gated experts cost 18 T k H F a layer and step", "[P225]") {
  Scenario s;
  ModelConfig& m = s.model_config;
  m.hidden_size = 64, m.num_layers = 1;
  m.moe_layer_config.num_experts = 8, m.moe_layer_config.top_k = 2;
  m.moe_layer_config.expert_hidden_size = 128, m.moe_layer_config.expert_activation = "swiglu";
  const double tokens = 1024;
  CHECK(3 * tokens * forward_flop_per_token(s).experts == 301989888);
  CHECK(3 * tokens * forward_flop_per_token(s).router == 3 * 2 * 1024 * 64 * 8);
  CHECK(forward_flop_per_token(s).dense_ffn == 0);
}

TEST_CASE("model FLOP of every kind of product, counted by hand") {
  Scenario s;
  ModelConfig& m = s.model_config;
  m.hidden_size = 8, m.num_layers = 3, m.num_attention_heads = 4, m.num_key_value_heads = 2;
  m.head_dim = 3, m.vocab_size = 11, m.sequence_length = 5, m.ffn_hidden_size = 7;
  m.moe_layer_config.num_experts = 6, m.moe_layer_config.top_k = 2;
  m.moe_layer_config.moe_every_k_layers = 3, m.moe_layer_config.expert_hidden_size = 9;
  m.moe_layer_config.shared_expert_hidden_size = 10;
  const ForwardFlop f = forward_flop_per_token(s);
  // Queries and the output projection are 8 x 12, keys and values 8 x 6.
  CHECK(f.projections == 3 * 2 * (8 * 12 + 8 * 6 + 8 * 6 + 12 * 8));
  CHECK(f.scores == 3 * (2 * 12 * 5 + 2 * 12 * 5));
  CHECK(f.router == 2 * 8 * 6);
  CHECK(f.experts == 2 * (2 * 8 * 9 + 2 * 9 * 8));
  CHECK(f.shared_expert == 2 * 8 * 10 + 2 * 10 * 8);
  CHECK(f.dense_ffn == 2 * (2 * 8 * 7 + 2 * 7 * 8));
  CHECK(f.head == 2 * 8 * 11);
  CHECK(training_flop_per_token(s) == 3 * f.total());
  CHECK(training_flop_per_step(s) == 3 * f.total() * 8 * 5);
}

TEST_CASE("DeepSeek-V3 has the published 671 G parameters, of which a token uses 37 G") {
  // arXiv 2412.19437, 4.2: 61 layers, the first three dense, 256 experts of 2048 and one shared.
  Scenario s;
  ModelConfig& m = s.model_config;
  m.attention = "multi_head_latent", m.position_embedding = "rotary", m.normalization = "rmsnorm";
  m.latent_attention = {1536, 512, 128, 64, 128};
  m.hidden_size = 7168, m.num_layers = 61, m.num_attention_heads = 128, m.ffn_hidden_size = 18432;
  m.vocab_size = 129280, m.sequence_length = 4096, m.tie_embeddings = false;
  m.attention_bias = m.ffn_bias = m.moe_layer_config.expert_bias = false;
  m.activation = m.moe_layer_config.expert_activation = "swiglu";
  m.moe_layer_config.num_experts = 256, m.moe_layer_config.top_k = 8;
  m.moe_layer_config.first_dense_layers = 3;
  m.moe_layer_config.expert_hidden_size = m.moe_layer_config.shared_expert_hidden_size = 2048;
  const ParameterCount all = model_parameters(s), active = active_parameters(s);
  const int64_t queries = int64_t{7168} * 1536 + 1536 + int64_t{1536} * 128 * (128 + 64),
                keys = int64_t{7168} * (512 + 64) + 512 + int64_t{512} * 128 * (128 + 128);
  CHECK(all.attention == 61 * (queries + keys + int64_t{128} * 128 * 7168));
  CHECK(all.dense_ffn == int64_t{3} * 3 * 7168 * 18432);
  CHECK(all.expert == int64_t{58} * 256 * 3 * 7168 * 2048);
  CHECK(static_cast<double>(all.total()) == Approx(671e9).margin(0.5e9));
  CHECK(std::floor(static_cast<double>(active.total()) / 1e9) == 37);
  const ForwardFlop f = forward_flop_per_token(s);
  // Twice the elements of the matrices; norms are none.
  CHECK(f.projections ==
        61.0 * 2 * double(queries - 1536 + keys - 512 + int64_t{128} * 128 * 7168));
  CHECK(f.scores == 61.0 * 2 * 4096 * 128 * (192 + 128));
  // Over two TP ranks: heads are halved, latents are whole on both.
  const ParallelSizes sizes = [] {
    DistributedConfig d;
    d.world_size = d.tensor_parallel_size = 2;
    return parallel_sizes(d, 256);
  }();
  const int64_t latents = int64_t{7168} * (1536 + 512 + 64) + 1536 + 512;
  CHECK(rank_parameters(s, sizes, 0, 0).attention ==
        61 * latents + (all.attention - 61 * latents) / 2);
}
