// Copies of weights and optimizer state that differ are named, and what may differ is no copy.

#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {

Scenario checked(int64_t dp, int64_t ep) {
  Scenario s = small_training(dp, ep, 4, 2, 3);
  s.distributed_config.check_replicas_every_steps = 1;
  s.training_config.optimizer = "adamw";
  s.training_config.learning_rate = 0.01;
  return s;
}

/// After step 2, element 1 of what `tensor_of` gives for a parameter of one rank becomes 0.125;
/// without a name, of the first one that the rank keeps a share of.
TrainRunOptions spoil(int64_t rank, const std::string& name,
                      const std::function<Tensor(const StatePiece&)>& tensor_of) {
  TrainRunOptions options;
  options.look_after_step = [=](Trainer& trainer, int64_t step) {
    const double value = 0.125;
    bool found = step != 2 || trainer.rank() != rank;
    for (FlatGroup& group : trainer.groups())
      group.for_each_piece(trainer.context(), [&](const StatePiece& piece) {
        if (found || (!name.empty() && piece.parameter->name != name)) return;
        found = true;
        trainer.context().device.write(tensor_of(piece).slice(1, {1}), &value,
                                       trainer.context().streams.compute);
      });
    return std::vector<double>{};
  };
  return options;
}

std::string fault_of(const Scenario& s, const TrainRunOptions& options) {
  try {
    train_in_child(s, options);
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::fault);
    return error.what();
  }
  return "the run went on";
}

}  // namespace

TEST_CASE("experts, slices and shares differ between ranks and are no copies", "[P122]") {
  CHECK(train_in_child(checked(1, 2)).losses.size() == 3);
  const auto passes = [](const std::function<void(Scenario&)>& change) {
    Scenario s = checked(2, 2);
    change(s);
    CHECK(train_in_child(s).losses.size() == 3);
  };
  passes([](Scenario& s) { s.training_config.dtype = "bf16"; });
  for (const int64_t zero : {1, 2, 3})
    passes([&](Scenario& s) { s.distributed_config.zero_stage = zero; });
  passes([](Scenario& s) {
    s.distributed_config.fsdp.sharding_strategy = "HYBRID_SHARD";
    s.distributed_config.fsdp.cpu_offload = true;
  });
  passes([](Scenario& s) {  // sliced weights, and norms that both ranks of a TP group keep
    s.distributed_config.world_size = 8;
    s.distributed_config.tensor_parallel_size = 2;
    s.distributed_config.expert_tensor_parallel_size = 2;
    s.distributed_config.sequence_parallel = true;
  });
  passes([](Scenario& s) {  // two stages, which both keep the tied embedding
    s.distributed_config.world_size = 8;
    s.distributed_config.pipeline_parallel_size = 2;
    s.model_config.tie_embeddings = true;
  });
}

TEST_CASE("a copy that differs in one element is named with its rank") {
  const auto weight = [](const StatePiece& piece) { return piece.weight; };
  // All eight ranks keep a norm, four keep each pair of experts.
  CHECK_THAT(
      fault_of(checked(4, 2), spoil(5, "layers.1.ffn_norm.gamma", weight)),
      Contains("step 2: copies of one parameter differ: ") &&
          Contains(
              "of layers.1.ffn_norm.gamma is not the same on rank 5 as on the others of 8 ranks "
              "that keep it"));
  CHECK_THAT(fault_of(checked(4, 2), spoil(6, "layers.1.moe.experts.w1",
                                           [](const StatePiece& piece) { return piece.v; })),
             Contains("second moment of layers.1.moe.experts.w1 is not the same on rank 6 as on "
                      "the others of 4 ranks"));
  // Each share of HYBRID_SHARD on two nodes is kept by both.
  Scenario hybrid = checked(4, 1);
  hybrid.distributed_config.fsdp.sharding_strategy = "HYBRID_SHARD";
  TrainRunOptions options = spoil(3, "", weight);
  options.change_profile = [](ClusterProfile& profile) {
    profile.gpus_per_node = profile.nics_per_node = 2;
  };
  CHECK_THAT(fault_of(hybrid, options),
             Contains(" is not the same on rank 3 as on the other of 2 ranks"));
}
