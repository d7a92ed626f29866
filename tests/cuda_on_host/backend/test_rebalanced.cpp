// Experts that work elsewhere, on the real backend, emulated: they train what one rank trains, and
// issue what the modelled cluster issues.
#include <catch2/catch.hpp>

#include "tests/cuda_on_host/backend/training.h"
#include "tests/equivalence/rebalanced_layouts.h"

using namespace moetwin;
using namespace moetwin::test;

TEST_CASE("rebalanced layouts on both machines and on one rank", "[rebalanced]") {
  constexpr int64_t kSteps = 2;
  for (const RebalancedLayout& layout : rebalanced_layouts()) {
    // One of each kind: emulated arithmetic is slow, and with this seed no token is near a tie.
    if (layout.layout.world() > 4 || layout.layout.dp > 1 || layout.layout.pipeline != "none")
      continue;
    INFO(layout.name);
    const auto in_fp32 = [](Scenario s) {
      s.training_config.dtype = "fp32";  // real GPUs have no fp64
      // Adam's first steps are all sign: what rounding leaves of a gradient would count in full.
      s.training_config.optimizer = "sgd";
      s.training_config.learning_rate = 0.5;
      s.rebalancing.interval_steps = 1;
      return s;
    };
    const Scenario scenario = in_fp32(layout.scenario(kSteps));
    const TrainResult one =
        train_with_ops(in_fp32(reference_scenario(layout.layout, kSteps)), emulated_gpus, true);
    const TrainResult real = train_with_ops(scenario, emulated_gpus, true),
                      modelled = train_with_ops(scenario, modelled_gpus, true);
    for (const TrainResult* expected : {&one, &modelled}) {
      CAPTURE(expected == &modelled ? "modelled" : "one rank");
      CHECK(distance(real.gradients, expected->gradients).value <= 5e-5);
      CHECK(distance(real.parameters, expected->parameters).value <= 5e-5);
      CHECK(loss_distance(real, *expected) <= 1e-5);
      CHECK(real.counts == expected->counts);
    }
    CHECK(real.text.find("[ep]") != std::string::npos);
    CHECK(first_difference(modelled.text, real.text) == "");
  }
}
