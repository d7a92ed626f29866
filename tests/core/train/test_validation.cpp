// The loss on sequences that are not trained on: of exactly those asked for, in every layout.

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

TEST_CASE("the last, smaller batch of a validation: fewer sequences on some ranks, none on others",
          "[P164]") {
  for (const int64_t sequences : {1, 5, 7, 8}) {
    CAPTURE(sequences);
    Scenario s = small_training(2, 2, 4, 2, 1);
    s.training_config.micro_batch_size = 2;
    s.training_config.global_batch_size = 8;
    s.training_config.validation_sequences = sequences;
    // With few places in the experts, sequences that do not count would push out those that do.
    s.model_config.moe_layer_config.capacity_factor = 0.75;
    s.model_config.moe_layer_config.drop_policy = "probability";
    Scenario one = s;
    one.distributed_config.world_size = one.distributed_config.data_parallel_size =
        one.distributed_config.expert_parallel_size = 1;
    const double expected = train_in_child(one).validation_loss;
    CHECK(std::isfinite(expected));
    CHECK(train_in_child(s).validation_loss == Approx(expected).epsilon(1e-9));
    s.distributed_config.comm_optimization.all_to_all_overlap = true;
    CHECK(train_in_child(s).validation_loss == Approx(expected).epsilon(1e-9));
  }
}

TEST_CASE("validation draws no noise and leaves training as it is") {
  Scenario s = small_training(1, 2, 4, 2, 4);
  s.routing.jitter_epsilon = 0.2;
  s.routing.noise = {"gaussian", 1};
  s.model_config.dropout = 0.5;
  s.training_config.validation_sequences = 4;
  const TrainResult last_only = train_in_child(s);
  s.training_config.validation_every = 1;
  const TrainResult often = train_in_child(s);
  CHECK(last_only.parameters == often.parameters);
  CHECK(last_only.losses == often.losses);
  CHECK(last_only.validation_loss == often.validation_loss);
  // With weights that stay, the loss does not depend on the step's draws.
  s.training_config.learning_rate = 0;
  s.training_config.steps = 1;
  const double first = train_in_child(s).validation_loss;
  s.training_config.steps = 3;
  CHECK(train_in_child(s).validation_loss == first);
}
