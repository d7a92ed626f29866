// Sharded parameters train what whole ones train, whatever is gathered when; gathers run where they
// should, and gathered parameters do not stay.

#include <algorithm>
#include <catch2/catch.hpp>

#include "core/parallel/shard_groups.h"
#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {

Scenario sharded(int64_t dp, int64_t ep, int64_t experts, const char* strategy) {
  Scenario s = small_training(dp, ep, experts, 2, 3);
  s.distributed_config.fsdp.sharding_strategy = strategy;
  s.training_config.global_batch_size = 2 * dp * ep;  // two micro-batches
  s.training_config.optimizer = "adamw";
  s.training_config.learning_rate = 0.003;
  s.training_config.max_grad_norm = 0.05;
  s.training_config.validation_sequences = 8;
  return s;
}

/// The modelled node has `gpus` of them.
TrainRunOptions nodes_of(int64_t gpus) {
  TrainRunOptions options;
  options.change_profile = [gpus](ClusterProfile& profile) {
    profile.gpus_per_node = profile.nics_per_node = gpus;
  };
  return options;
}

void check_same_training(const Scenario& s, int64_t gpus_per_node = 8) {
  Scenario whole = s;
  whole.distributed_config.fsdp = {};
  whole.distributed_config.zero_stage = 0;
  const TrainResult expected = train_in_child(whole, nodes_of(gpus_per_node));
  const TrainResult result = train_in_child(s, nodes_of(gpus_per_node));
  const Distance gradients = distance(result.gradients, expected.gradients);
  const Distance parameters = distance(result.parameters, expected.parameters);
  CAPTURE(gradients.where, parameters.where);
  CHECK(gradients.value <= 1e-12);
  CHECK(parameters.value <= 1e-10);
  CHECK(result.counts == expected.counts);
  CHECK(result.validation_loss == Approx(expected.validation_loss).epsilon(1e-12));
  REQUIRE(result.gradient_norms.size() == expected.gradient_norms.size());
  for (size_t i = 0; i < result.gradient_norms.size(); ++i)
    CHECK(result.gradient_norms[i] == Approx(expected.gradient_norms[i]).epsilon(1e-11));
}

}  // namespace

TEST_CASE("every sharding strategy trains what whole parameters train", "[P131]") {
  for (const char* strategy :
       {"SHARD_OPTIMIZER", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"}) {
    INFO(strategy);
    check_same_training(sharded(4, 2, 4, strategy), 4);
  }
}

TEST_CASE("one flat bucket or one for each layer: identical weights", "[P129]") {
  for (const char* strategy : {"NO_SHARD", "SHARD_OPTIMIZER"}) {
    Scenario s = sharded(2, 1, 4, strategy);
    s.training_config.optimizer = "sgd";
    // The norm is a sum over buckets, whose last digit is another processor's to choose.
    s.training_config.max_grad_norm = 0;
    s.distributed_config.comm_optimization.gradient_bucket_bytes = int64_t{1} << 30;
    const TrainResult one = train_in_child(s);
    s.distributed_config.comm_optimization.gradient_bucket_bytes = 1;
    const TrainResult many = train_in_child(s);
    CHECK(distance(many.parameters, one.parameters).value == 0);
  }
}

TEST_CASE("the stages of ZeRO are those strategies") {
  for (const int64_t stage : {2, 3}) {
    INFO("zero_stage " << stage);
    Scenario s = sharded(2, 2, 4, "auto");
    s.distributed_config.zero_stage = stage;
    check_same_training(s);
  }
}

TEST_CASE("when parameters are gathered changes no result") {
  Scenario s = sharded(2, 2, 4, "FULL_SHARD");
  FsdpConfig& fsdp = s.distributed_config.fsdp;
  SECTION("nothing ahead, one layer at a time") {
    fsdp.forward_prefetch = false;
    fsdp.backward_prefetch = "none";
    fsdp.limit_all_gathers = 1;
  }
  SECTION("far ahead, reductions in line") {
    fsdp.backward_prefetch = "BACKWARD_POST";
    fsdp.limit_all_gathers = 4;
    s.distributed_config.comm_optimization.gradient_reduction_overlap = false;
  }
  SECTION("untied head, chunks of tokens, a shared expert") {
    s.model_config.tie_embeddings = false;
    s.model_config.moe_layer_config.shared_expert_hidden_size = 8;
    s.distributed_config.comm_optimization.all_to_all_overlap = true;
  }
  SECTION("dense layers between MoE layers") {
    s.model_config.num_layers = 4;
    s.model_config.moe_layer_config.moe_every_k_layers = 2;
  }
  check_same_training(s);
}

TEST_CASE("experts whose hidden width is split are sharded too") {
  Scenario s = sharded(2, 4, 2, "FULL_SHARD");  // EP 4 > 2 experts: 2 hidden rows
  check_same_training(s);
}

TEST_CASE("one copy of each expert: dense parameters are sharded alone") {
  check_same_training(sharded(1, 4, 4, "FULL_SHARD"));
}

TEST_CASE("parameters and optimizer state that wait in host memory train the same") {
  Scenario s = sharded(2, 2, 4, "FULL_SHARD");
  s.distributed_config.fsdp.cpu_offload = true;
  SECTION("fp64") { check_same_training(s); }
  SECTION("bf16") {
    const TrainResult host = (s.training_config.dtype = "bf16", train_in_child(s));
    s.distributed_config.fsdp.cpu_offload = false;
    const TrainResult device = train_in_child(s);
    CHECK(host.losses == device.losses);
    CHECK(distance(host.parameters, device.parameters).value == 0);
  }
}

TEST_CASE("gradients reduced in bf16 stay within its rounding") {
  Scenario s = sharded(4, 1, 4, "FULL_SHARD");
  s.training_config.dtype = "fp32";
  const TrainResult wide = train_in_child(s);
  s.distributed_config.fsdp.mixed_precision.reduce_dtype = "bf16";
  const TrainResult narrow = train_in_child(s);
  const Distance gradients = distance(narrow.gradients, wide.gradients, 1e-2);
  CAPTURE(gradients.where);
  // Rounded before and after each of two sums: 2^-9 relative each, of parts that may cancel a bit.
  CHECK(gradients.value < 0.02);
  CHECK(gradients.value > 1e-4);  // it was really done in bf16
}

TEST_CASE("bf16 parameters are gathered from fp32 shares") {
  Scenario s = sharded(2, 2, 4, "FULL_SHARD");
  s.training_config.dtype = "bf16";
  s.training_config.steps = 1;
  const TrainResult result = train_in_child(s);
  s.distributed_config.fsdp.sharding_strategy = "NO_SHARD";
  const TrainResult whole = train_in_child(s);
  // The same bf16 weights, so the same forward; gradients differ by the order of fp32 sums.
  CHECK(result.losses[0] == whole.losses[0]);
  CHECK(distance(result.gradients, whole.gradients).value < 1e-5);
}

TEST_CASE("experts are gathered before the token exchange that needs them") {
  Scenario s = sharded(2, 2, 4, "FULL_SHARD");
  s.training_config.numerics = "none";
  s.training_config.global_batch_size = 4;
  s.routing.source = "uniform";
  TrainRunOptions options;
  // The order of expert gathers (1) and token exchanges (2) of the last forward, as launched.
  options.look_at_gradients = [](Trainer& trainer, int64_t step) {
    Context& context = trainer.context();
    for (const Stream stream :
         {context.streams.compute, context.streams.dispatch, context.streams.reduction})
      context.device.synchronize(stream);
    Profile profile = context.device.take_profile(true);
    std::sort(profile.intervals.begin(), profile.intervals.end(),
              [](const Interval& a, const Interval& b) { return a.order < b.order; });
    std::vector<double> order;
    for (const Interval& i : profile.intervals) {
      if (i.phase != Phase::forward) continue;
      if (std::string(i.group) == "expert_gather") order.push_back(1);
      // Counts are 8 bytes an expert; tokens are 6 rows of 8 doubles.
      if (i.activity == Activity::all_to_all && i.bytes >= 64) order.push_back(2);
    }
    return step == 3 ? order : std::vector<double>{};
  };
  options.look_after_step = [](Trainer& trainer, int64_t) {
    trainer.context().device.take_profile(true);
    return std::vector<double>{};
  };
  const TrainResult result = train_in_child(s, options);
  for (const auto& order : result.seen) {
    REQUIRE(std::count(order.begin(), order.end(), 1.0) == 2);
    REQUIRE(std::count(order.begin(), order.end(), 2.0) == 4);  // to the experts and back
    // Layer l's gather before its exchanges: with prefetch both are launched before the first.
    CHECK(order[0] == 1);
    CHECK(order[1] == 1);
  }
}

TEST_CASE("without numbers the same time and memory") {
  Scenario s = sharded(2, 2, 4, "FULL_SHARD");
  s.routing.source = "W1";
  TrainRunOptions options;
  options.tensors = false;
  options.look_after_step = [](Trainer& trainer, int64_t) {
    const MemoryUse& use = trainer.context().memory.use();
    std::vector<double> numbers{static_cast<double>(use.peak),
                                static_cast<double>(use.peak_reserved)};
    numbers.insert(numbers.end(), use.bytes.begin(), use.bytes.end());
    return numbers;
  };
  s.training_config.validation_sequences = 0;
  const TrainResult full = train_in_child(s, options);
  s.training_config.numerics = "none";
  const TrainResult none = train_in_child(s, options);
  CHECK(full.seen == none.seen);
  CHECK(full.step_seconds == none.step_seconds);
}

TEST_CASE("a thousand ranks shard without numbers", "[P070]") {
  Scenario s = sharded(128, 8, 8, "HYBRID_SHARD");
  s.training_config.numerics = "none";
  s.training_config.steps = 1;
  s.training_config.global_batch_size = 1024;
  s.routing.source = "uniform";
  TrainRunOptions options;
  options.check_access = false;
  const TrainResult result = train_in_child(s, options);
  REQUIRE(result.step_seconds.size() == 1);
  CHECK(result.step_seconds[0] > 0);
}

TEST_CASE("shares inside a node, copies across nodes") {
  // Dense-DP of 16 ranks, 4 a node: rank 6 shares with 4..7 and copies 2, 6, 10, 14.
  const Group dense{0, 1, 0, 16, 1};
  ShardGroups g = shard_groups(dense, 6, 4);
  CHECK(g.shard.members() == std::vector<int64_t>{4, 5, 6, 7});
  CHECK(g.copies.members() == std::vector<int64_t>{2, 6, 10, 14});
  // Expert-DP with EP 2, ranks 1, 3, ..., 15: two on each node.
  const Group experts{1, 1, 0, 8, 2};
  g = shard_groups(experts, 11, 4);
  CHECK(g.shard.members() == std::vector<int64_t>{9, 11});
  CHECK(g.copies.members() == std::vector<int64_t>{3, 7, 11, 15});
  // EP fills the node: nobody to share with.
  const Group far{2, 1, 0, 4, 4};
  g = shard_groups(far, 10, 4);
  CHECK(g.shard.members() == std::vector<int64_t>{10});
  CHECK(g.copies.members() == std::vector<int64_t>{2, 6, 10, 14});
  // Not hybrid: all share.
  g = shard_groups(dense, 6, 0);
  CHECK(g.shard == dense);
  CHECK(g.copies.members() == std::vector<int64_t>{6});
  // Nested strides: {0,1} + 8i, i < 4, nodes of 4: pairs.
  const Group nested{0, 4, 8, 2, 1};
  g = shard_groups(nested, 9, 4);
  CHECK(g.shard.members() == std::vector<int64_t>{8, 9});
  CHECK(g.copies.members() == std::vector<int64_t>{1, 9, 17, 25});
  CHECK_THROWS_WITH(shard_groups(Group{0, 1, 0, 6, 1}, 0, 4),
                    Contains("sharding_strategy") && Contains("size 6"));
}
