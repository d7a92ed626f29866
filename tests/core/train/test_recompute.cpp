// Recompute: the same training with less memory; routing and its record once.

#include <catch2/catch.hpp>
#include <string_view>

#include "core/scenario/model_size.h"
#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

std::vector<double> logged_losses(const StepRow& row) {
  std::vector<double> numbers;
  for (const LayerRow& layer : row.layers)
    numbers.insert(numbers.end(), {layer.aux, layer.z, layer.importance});
  return numbers;
}

void check_same_training(Scenario s) {
  TrainRunOptions options;
  options.look_at_row = logged_losses;
  s.training_config.recompute = "none";
  const TrainResult kept = train_in_child(s, options);
  for (const auto& modules :
       std::vector<std::vector<std::string>>{{"attention_core"},
                                             {"expert_activation"},
                                             {"attention_core", "expert_activation"},
                                             {}}) {
    s.training_config.recompute = modules.empty() ? "full" : "selective";
    s.training_config.recompute_modules = modules;
    INFO(s.training_config.recompute << " " << modules.size());
    const TrainResult again = train_in_child(s, options);
    // The same ops on the same values: not a bit differs.
    CHECK(distance(again.gradients, kept.gradients).value == 0);
    CHECK(distance(again.parameters, kept.parameters).value == 0);
    CHECK(again.losses == kept.losses);
    CHECK(again.counts == kept.counts);
    CHECK(again.rows == kept.rows);
  }
}

}  // namespace

TEST_CASE("recompute changes no bit of the training; load losses are logged once", "[P085]") {
  Scenario s = small_training(2, 2, 4, 2, 2);
  s.training_config.global_batch_size = 8;
  SECTION("plain") {}
  SECTION("dropout, jitter, noise, shared expert, z-loss") {
    s.model_config.dropout = 0.1;
    s.routing.jitter_epsilon = 0.01;
    s.routing.noise = {"gaussian", 0.1};
    s.model_config.moe_layer_config.shared_expert_hidden_size = 8;
    s.model_config.moe_layer_config.z_loss_factor = 0.01;
    s.model_config.moe_layer_config.aux_loss_scope = "global_batch";
  }
  SECTION("rotary, gated, capacity, chunks") {
    s.model_config.position_embedding = "rotary";
    s.model_config.normalization = "rmsnorm";
    s.model_config.qk_norm = true;
    s.model_config.activation = s.model_config.moe_layer_config.expert_activation = "swiglu";
    s.model_config.moe_layer_config.capacity_factor = 1;
    s.distributed_config.comm_optimization.all_to_all_overlap = true;
  }
  SECTION("sharded parameters, dense layers between") {
    s.model_config.num_layers = 4;
    s.model_config.moe_layer_config.moe_every_k_layers = 2;
    s.distributed_config.zero_stage = 3;
  }
  check_same_training(s);
}

TEST_CASE("the logged load loss of a balanced router is 1 with recompute", "[P085]") {
  // All scores are equal with router weights of zero: every P_i is 1/E, so E sum f_i P_i = 1.
  Scenario s = small_training(1, 1, 4, 2, 1);
  s.routing.init_scale = 0;
  s.training_config.global_batch_size = 3;
  s.training_config.recompute = "full";
  TrainRunOptions options;
  options.look_at_row = logged_losses;
  const TrainResult result = train_in_child(s, options);
  REQUIRE(result.rows.size() == 2 * 3);
  CHECK(result.rows[0] == Approx(1).epsilon(1e-12));
  CHECK(result.rows[3] == Approx(1).epsilon(1e-12));
}

namespace {

/// A dense model whose peak is at the logits, when all layers' activations are there and no layer
/// is at work.
Scenario dense_scenario() {
  Scenario s = small_training(1, 1, 1, 1, 1);
  ModelConfig& m = s.model_config;
  m.moe_layer_config.num_experts = 0;
  m.hidden_size = 128;
  m.num_attention_heads = 4;
  m.ffn_hidden_size = 512;
  m.num_layers = 6;
  m.sequence_length = 256;
  m.vocab_size = 16384;
  s.training_config.micro_batch_size = s.training_config.global_batch_size = 2;
  s.training_config.dtype = "bf16";
  s.training_config.numerics = "none";
  return s;
}

int64_t peak_of(const Scenario& s) {
  TrainRunOptions options;
  options.look_after_step = [](Trainer& trainer, int64_t) {
    return std::vector<double>{static_cast<double>(trainer.context().memory.use().peak)};
  };
  return static_cast<int64_t>(train_in_child(s, options).seen[0][0]);
}

}  // namespace

TEST_CASE("recompute lowers the peak by what it does not keep") {
  Scenario s = dense_scenario();
  const int64_t kept = peak_of(s);
  const int64_t tokens = 512, h = 128, f = 512, heads = 4, layers = 6;
  s.training_config.recompute = "selective";
  s.training_config.recompute_modules = {"attention_core"};
  // bf16 output of attention and its fp32 log-sum-exp, per layer.
  CHECK(kept - peak_of(s) == layers * tokens * (2 * h + 4 * heads));
  s.training_config.recompute = "full";
  // Per layer in bf16: two norm outputs, q, k, v, output of attention, residual, and before and
  // after the activation; in fp32: mean and 1/std of two norms, log-sum-exp. Its input stays.
  CHECK(kept - peak_of(s) ==
        layers * tokens * (2 * (2 * h + 3 * h + h + h + 2 * f) + 4 * (4 + heads)));
}

TEST_CASE("expert activations that are made again are not kept") {
  Scenario s = dense_scenario();
  s.model_config.moe_layer_config.num_experts = 4;
  s.model_config.moe_layer_config.top_k = 2;
  s.model_config.moe_layer_config.expert_hidden_size = 512;
  s.routing.source = "uniform";
  const int64_t kept = peak_of(s);
  s.training_config.recompute = "selective";
  s.training_config.recompute_modules = {"expert_activation"};
  // Two rows of 512 bf16 values for each of 512 tokens, six layers.
  CHECK(kept - peak_of(s) == 6 * 2 * 512 * 512 * 2);
}

TEST_CASE("recomputed FLOP count for the hardware, not for the model") {
  Scenario s = dense_scenario();
  const double h = 128, f = 512, seq = 256, layers = 6, vocab = 16384;
  const double model = training_flop_per_token(s);
  CHECK(recompute_flop_per_token(s) == 0);
  const double layer = 2 * h * 4 * h + 4 * seq * h + 4 * h * f;
  CHECK(model == 3 * (layers * layer + 2 * h * vocab));
  s.training_config.recompute = "full";
  CHECK(recompute_flop_per_token(s) == layers * (layer - 2 * h * f));
  s.cluster.kernels = "megatron-core";
  CHECK(recompute_flop_per_token(s) == layers * layer);
  CHECK(training_flop_per_token(s) == model);
  s.training_config.recompute = "selective";
  CHECK(recompute_flop_per_token(s) == layers * 4 * seq * h);
  s.training_config.recompute_modules = {"expert_activation"};
  CHECK(recompute_flop_per_token(s) == 0);
}

namespace {

/// Products that a step's recompute launches on its one rank.
int64_t products_made_again(Scenario s) {
  s.training_config.recompute = "full";
  s.training_config.steps = 1;
  s.output.timeline_steps = {1};
  int64_t products = 0;
  TrainRunOptions options;
  options.tensors = false;
  options.look_at_rank = [&](const RankStep& step) {
    for (const Interval& i : step.profile.intervals)
      products += i.phase == Phase::recompute && std::string_view(i.name) == "gemm";
  };
  options.say = [&] { return std::to_string(products); };
  return std::stoll(train_in_child(s, options).text);
}

}  // namespace

TEST_CASE("a dense layer is run again as far as its backward needs it") {
  Scenario s = dense_scenario();
  // Of each layer's qkv, output, up and down the last makes nothing that the backward reads.
  CHECK(products_made_again(s) == 6 * 3);
  s.cluster.kernels = "torch-fsdp";
  CHECK(products_made_again(s) == 6 * 3);
  // Its mask is of what the last product makes.
  s.model_config.dropout = 0.1;
  CHECK(products_made_again(s) == 6 * 4);
  s.model_config.dropout = 0;
  s.cluster.kernels = "megatron-core";
  CHECK(products_made_again(s) == 6 * 4);
}

TEST_CASE("recompute is a phase of its own") {
  Scenario s = dense_scenario();
  TrainRunOptions options;
  options.look_at_row = [](const StepRow& row) {
    return std::vector<double>{row.parts.forward, row.parts.recompute, row.parts.backward};
  };
  const TrainResult kept = train_in_child(s, options);
  s.training_config.recompute = "full";
  const TrainResult again = train_in_child(s, options);
  CHECK(kept.rows[1] == 0);
  CHECK(again.rows[0] == Approx(kept.rows[0]));
  CHECK(again.rows[2] == Approx(kept.rows[2]));
  // All of the forward but embedding and head, whose logits alone are half of it.
  CHECK(again.rows[1] > 0.1 * kept.rows[0]);
  CHECK(again.rows[1] < kept.rows[0]);
}
