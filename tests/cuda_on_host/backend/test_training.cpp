// The whole training on the real backend, emulated, beside the modelled cluster: the same losses
// and routing, the same ops and collectives in the same order.
#include <catch2/catch.hpp>

#include "core/base/bytes.h"
#include "core/scenario/read.h"
#include "tests/cuda_on_host/backend/routing_log.h"
#include "tests/cuda_on_host/backend/training.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

struct Watched {
  TrainResult result;
  RoutingLog routing;
  std::string ops;  ///< of the last step
};

// `watched_steps`: steps in which the router's choices are read, which is a copy more.
Watched train(Scenario scenario, const MakeCluster& machine, int64_t watched_steps,
              const RoutingLog* replay = nullptr) {
  const TrainingConfig& t = scenario.training_config;
  const DistributedConfig& d = scenario.distributed_config;
  const int64_t a_step = scenario.model_config.num_moe_layers() * t.global_batch_size /
                         (t.micro_batch_size * d.data_parallel_size * d.expert_parallel_size);
  const auto calls = static_cast<size_t>(watched_steps * a_step);
  scenario.output.timeline_steps = {t.steps};
  RoutingLog log;
  OpList ops(t.steps);
  TrainRunOptions options;
  options.timeout_seconds = 900;
  options.tensors = false;
  options.data = [scenario] { return open_data(scenario); };
  options.cluster = [&](const Scenario& s) {
    return watch_routing(machine(s), log, calls, replay);
  };
  options.look_at_rank = [&](const RankStep& step) { ops.see(step); };
  options.say = [&] { return ByteWriter().text(to_bytes(log)).text(ops.text()).take(); };
  Watched run;
  run.result = train_in_child(scenario, options);
  ByteReader said(run.result.text);
  run.routing = routing_log(said.text());
  run.ops = said.text();
  return run;
}

}  // namespace

TEST_CASE("twenty steps of the quickstart on both machines", "[quickstart]") {
  const Scenario scenario =
      read_scenario(MOETWIN_SOURCE_SCENARIOS "/quickstart.json", {"training_config.steps=20"});
  // Not in the last step, so that its ops are those of a run that nobody watches.
  const Watched modelled = train(scenario, modelled_gpus, 19),
                real = train(scenario, emulated_gpus, 19);
  REQUIRE(real.result.losses.size() == 20);
  const double losses = loss_distance(real.result, modelled.result);
  CHECK(losses <= 1e-4);
  CHECK(real.result.losses.back() < real.result.losses.front() - 1);

  const RoutingDifference routing = compare(modelled.routing, real.routing, 1e-5);
  CHECK(routing.tokens == 19 * 4 * 2048);
  CAPTURE(routing.undecided, routing.moved_ties, routing.widest);
  CHECK(routing.moved == 0);

  CHECK(modelled.ops.size() > 10'000);  // 8 ranks, hundreds of ops each
  CHECK(first_difference(modelled.ops, real.ops) == "");
  WARN("losses within " << losses << "; of " << routing.tokens << " routings " << routing.undecided
                        << " were undecided and " << routing.moved_ties << " of these differ; "
                        << routing.moved << " others");
}

TEST_CASE("a hundred steps with the first run's routing stay together", "[hundred]") {
  const Scenario scenario = read_scenario(
      MOETWIN_SOURCE_SCENARIOS "/quickstart.json",
      {"training_config.steps=100", "model_config.num_layers=2", "model_config.hidden_size=32",
       "model_config.sequence_length=16", "model_config.moe_layer_config.expert_hidden_size=32",
       "distributed_config.world_size=4", "distributed_config.data_parallel_size=2",
       "training_config.global_batch_size=8", "training_config.micro_batch_size=2",
       "training_config.validation_sequences=8"});
  const Watched modelled = train(scenario, modelled_gpus, 100),
                real = train(scenario, emulated_gpus, 100, &modelled.routing);
  REQUIRE(real.result.losses.size() == 100);
  const double losses = loss_distance(real.result, modelled.result);
  CHECK(losses <= 1e-4);
  CHECK(real.result.losses.back() < real.result.losses.front() - 1);
  CHECK(real.result.counts == modelled.result.counts);
  CHECK(compare(modelled.routing, real.routing, 0).tokens == 100 * 2 * 128);
  WARN("losses within " << losses);
}
