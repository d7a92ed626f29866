// The quickstart must learn: below 2.4 nats a byte, well below a bigram model of the same text, and
// every part of the model must earn its place: without attention or without experts it is worse.

#include <catch2/catch.hpp>
#include <thread>

#include "core/ops/elementwise.h"
#include "core/record/recorder.h"
#include "core/scenario/read.h"
#include "core/train/train.h"
#include "tests/scenarios/run_scenario.h"
#include "tests/support/bigram.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

/// Validation loss after training with the parameters whose names contain one of `ablated` held at
/// zero.
double validation_loss(const Scenario& scenario, const std::vector<std::string>& ablated) {
  ChildLimits limits;
  limits.timeout = std::chrono::minutes(9);
  return in_child(
      [&] {
        const Grid grid(scenario.distributed_config,
                        scenario.model_config.moe_layer_config.num_experts,
                        scenario.model_config.expert_width());
        const auto data = open_data(scenario);
        RunInfo info;
        const auto cluster = make_sim_cluster(
            scenario, sim_options(static_cast<int>(std::thread::hardware_concurrency())));
        info.device = cluster->device();
        Recorder recorder(scenario, grid, info);
        TrainerServices services;
        services.data = data.get();
        services.recorder = &recorder;
        services.hooks.after_step = [&](Trainer& trainer, int64_t) {
          for (Parameter& p : trainer.parameters().all())
            for (const std::string& part : ablated)
              if (p.name.find(part) != std::string::npos)
                trainer.context().launch(fill(p.value, {}));
        };
        cluster->run([&](Backend& device) { train_rank(device, scenario, grid, services); });
        return recorder.validation_loss(scenario.training_config.steps);
      },
      limits);
}

}  // namespace

TEST_CASE("the quickstart learns English, and attention and experts both matter") {
  const Scenario scenario = read_scenario(scenario_path("quickstart.json"));
  const double whole = validation_loss(scenario, {});
  const double bigram =
      bigram_loss(*open_data(scenario), scenario.model_config.sequence_length,
                  scenario.model_config.vocab_size, scenario.training_config.validation_sequences);
  CAPTURE(whole, bigram);
  CHECK(whole < 2.4);
  CHECK(whole < bigram - 0.2);
  const double without_attention = validation_loss(scenario, {"attention.out"});
  CAPTURE(without_attention);
  CHECK(without_attention > whole + 0.1);
  const double without_experts = validation_loss(scenario, {"experts.w2", "experts.b2"});
  CAPTURE(without_experts);
  CHECK(without_experts > whole + 0.1);
}

TEST_CASE("the parts of a step sum to the step") {
  const TemporaryDirectory directory;
  const RunOutcome ran =
      run_scenario("quickstart.json", directory.path(), {"--set", "training_config.steps=5"});
  REQUIRE(ran.exit_code == 0);
  const Json::Value report = report_of(directory.path());
  double sum = 0;
  for (const Json::Value& part : report["step_parts_seconds"])
    if (part.isNumeric()) sum += part.asDouble();
  CHECK(report["step_parts_seconds"]["compute"].asDouble() > 0);
  CHECK(sum == Approx(report["throughput"]["step_seconds_median"].asDouble()).epsilon(1e-9));
}
