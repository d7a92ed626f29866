// Troubles that users of other frameworks met with stages that differ, on both machines: each
// trains what one rank, or the same ranks without stages, train.
#include <catch2/catch.hpp>

#include "tests/core/train/small_training.h"
#include "tests/cuda_on_host/backend/training.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

struct Machine {
  const char* name;
  MakeCluster make;
};
const std::vector<Machine>& machines() {
  static const std::vector<Machine> both{{"modelled", modelled_gpus}, {"emulated", emulated_gpus}};
  return both;
}

Scenario in_fp32(Scenario s) {
  s.training_config.dtype = "fp32";
  s.distributed_config.timeout_seconds = 20;  // of a hang
  return s;
}

Scenario piped(Scenario s, int64_t stages) {
  s.distributed_config.world_size *= stages;
  s.distributed_config.pipeline_parallel_size = stages;
  return s;
}

/// Rows of the result: MoE layers and the balance loss of each step.
TrainResult train(const Scenario& scenario, const Machine& machine) {
  TrainRunOptions options;
  options.cluster = machine.make;
  options.look_at_row = [](const StepRow& row) {
    return std::vector<double>{static_cast<double>(row.layers.size()), row.aux};
  };
  return train_in_child(scenario, options);
}

void check_equal(const TrainResult& result, const TrainResult& expected, int64_t moe_layers) {
  CHECK(distance(result.gradients, expected.gradients).value <= 1e-5);
  CHECK(distance(result.parameters, expected.parameters).value <= 1e-5);
  CHECK(result.counts == expected.counts);
  CHECK(loss_distance(result, expected) <= 1e-6);
  REQUIRE(result.rows.size() == expected.rows.size());
  for (size_t i = 0; i < result.rows.size(); i += 2) {
    CHECK(result.rows[i] == static_cast<double>(moe_layers));
    CHECK(result.rows[i + 1] == Approx(expected.rows[i + 1]).epsilon(1e-6));
  }
}

}  // namespace

TEST_CASE("expert parallel inside two stages, four micro-batches, 20 steps", "[P035]") {
  Scenario s = in_fp32(small_training(1, 2, 4, 2, 20));
  s.training_config.global_batch_size = 8;
  s.training_config.learning_rate = 0.1;
  for (const Machine& machine : machines()) {
    INFO(machine.name);
    const TrainResult result = train(piped(s, 2), machine), expected = train(s, machine);
    REQUIRE(result.losses.size() == 20);
    CHECK(loss_distance(result, expected) <= 1e-6);
  }
}

TEST_CASE("four stages of which the first has no MoE layer", "[P038]") {
  Scenario s = in_fp32(small_training(1, 1, 4, 2, 3));
  s.model_config.num_layers = 8;
  s.model_config.moe_layer_config.moe_every_k_layers = 2;  // layers 1, 3, 5 and 7
  s.training_config.global_batch_size = 4;
  Scenario p = piped(s, 4);
  p.distributed_config.layers_per_stage = {1, 3, 2, 2};
  for (const Machine& machine : machines()) {
    INFO(machine.name);
    const TrainResult result = train(p, machine);
    check_equal(result, train(s, machine), 4);
    // E sum f P of a layer is 1 when it is balanced: a mean over all eight would be near half.
    for (size_t i = 1; i < result.rows.size(); i += 2) CHECK(result.rows[i] >= 1);
  }
}

TEST_CASE("14 layers and one more on the last stage", "[P039]") {
  Scenario s = in_fp32(small_training(1, 1, 2, 1, 2));
  s.model_config.num_layers = 15;
  s.training_config.global_batch_size = 2;
  Scenario p = piped(s, 2);
  p.distributed_config.num_layers_in_last_pipeline_stage = 8;
  for (const Machine& machine : machines()) {
    INFO(machine.name);
    check_equal(train(p, machine), train(s, machine), 15);
  }
}
