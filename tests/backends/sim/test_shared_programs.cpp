// Ranks that are alike share one run of the program: every figure of every rank is what it is when
// each runs it.
#include <catch2/catch.hpp>
#include <limits>

#include "backends/sim/alike/alike.h"
#include "backends/sim/cluster.h"
#include "core/base/error.h"
#include "core/record/json_text.h"
#include "core/record/recorder.h"
#include "core/train/trainer.h"
#include "tests/backends/sim/representative/cases.h"
#include "tests/support/in_child.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

Grid grid_of(const Scenario& s) {
  return Grid(s.distributed_config, s.model_config.moe_layer_config.num_experts,
              s.model_config.expert_width());
}

/// The whole report of a run: parts, memory and routing of every rank.
std::string record(const Scenario& scenario, bool share, const std::vector<Fault>& faults = {},
                   int64_t last_step = 0) {
  return in_child([&] {
    SimOptions options = sim_options();
    options.share_programs = share;
    ClusterProfile profile =
        read_cluster_profile(scenario.cluster.profile, options.profile_directories);
    profile.faults = faults;
    const auto cluster = make_sim_cluster(scenario, std::move(profile), options);
    RunInfo info;
    info.backend = "sim";
    info.device = cluster->device();
    std::string text;
    info.on_step = [&](const StepRow& row) {
      text += std::to_string(row.step) + " " + std::to_string(row.end * 1e9) + "\n";
    };
    const Grid grid = grid_of(scenario);
    Recorder recorder(scenario, grid, info);
    TrainerServices services;
    services.recorder = &recorder;
    if (last_step > 0) services.stop_after = [&](int64_t step) { return step >= last_step; };
    cluster->train(scenario, grid, services, nullptr);
    return text + json_text(report_json(recorder.finish({})));
  });
}

Scenario scenario_of(uint64_t seed, const std::string& source) {
  Scenario s = random_scenario(seed, 64, source);
  s.training_config.numerics = "none";
  s.training_config.steps = 3;
  s.memory.on_exceed = "report";
  s.distributed_config.zero_stage = 0;
  s.distributed_config.fsdp.sharding_strategy = "auto";
  return s;
}

bool any_alike(const Scenario& s) { return AlikeRanks(s, grid_of(s)).any(); }

}  // namespace

TEST_CASE("ranks that share a program have the figures of ranks that run their own") {
  int64_t cases = 0, with_stages = 0, with_tp = 0;
  for (uint64_t seed = 1; cases < 12 && seed < 200; ++seed) {
    constexpr const char* kSources[] = {"uniform", "W1", "W8", "W2"};
    const Scenario s = scenario_of(seed, kSources[seed % 4]);
    if (!any_alike(s)) continue;
    ++cases;
    with_stages += s.distributed_config.pipeline_parallel_size > 1;
    with_tp += s.distributed_config.tensor_parallel_size > 1;
    INFO(describe(s));
    CHECK(record(s, true) == record(s, false));
  }
  CHECK(cases == 12);
  CHECK(with_stages > 0);
  CHECK(with_tp > 0);
}

namespace {
/// 16 GPUs, four copies of experts over four: 0 to 3 run their own program, 4 to 7 that of 4 to 15.
Scenario four_copies() {
  Scenario s = scenario_of(1, "W8");
  s.distributed_config = {};
  s.distributed_config.world_size = 16;
  s.distributed_config.data_parallel_size = 4;
  s.distributed_config.expert_parallel_size = 4;
  s.model_config.moe_layer_config.num_experts = 8;
  s.model_config.moe_layer_config.moe_every_k_layers = 1;
  s.training_config.global_batch_size = 16 * s.training_config.micro_batch_size;
  s.training_config.recompute = "none";
  return s;
}
}  // namespace

TEST_CASE("ranks with parts of sequences share programs with the same parts of others") {
  Scenario s = four_copies();
  s.distributed_config.context_parallel_size = 8;
  s.model_config.sequence_length = 2048;
  s.distributed_config.world_size = 32;
  s.distributed_config.data_parallel_size = 8;
  s.training_config.global_batch_size = 4 * s.training_config.micro_batch_size;
  for (const char* exchange : {"p2p", "all_gather"}) {
    s.distributed_config.context_parallel_exchange = exchange;
    const AlikeRanks alike(s, grid_of(s));
    REQUIRE(alike.any());
    // Copies of two groups of experts: 8 ranks have the parts of a sequence.
    CHECK(alike.leader(26) == 10);
    CHECK(record(s, true) == record(s, false));
  }
}

TEST_CASE("which ranks are alike") {
  const Scenario s = four_copies();
  const AlikeRanks alike(s, grid_of(s));
  REQUIRE(alike.any());
  CHECK(alike.leaders() == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(alike.leader(2) == 2);
  CHECK(alike.leader(6) == 6);
  CHECK(alike.leader(9) == 5);
  CHECK(alike.leader(15) == 7);
  CHECK(alike.sharing(3) == 1);
  CHECK(alike.sharing(7) == 3);
  // With shares of the optimizer's state, or tokens of each source's own, no two are.
  Scenario other = s;
  other.distributed_config.zero_stage = 1;
  CHECK_FALSE(any_alike(other));
  other = s;
  other.routing.source = "W4";
  CHECK_FALSE(any_alike(other));
  // 7 assignments of 8 experts: what is left over goes to other experts in every copy.
  other = s;
  other.model_config.sequence_length = 7;
  other.training_config.micro_batch_size = 1;
  other.model_config.moe_layer_config.top_k = 1;
  CHECK_FALSE(any_alike(other));
}

TEST_CASE("faults strike the ranks they name, and copies that fall behind wait for each other") {
  constexpr double kForever = std::numeric_limits<double>::infinity();
  const std::vector<Fault> faults{{Fault::What::gpu, 9, 0.25, 0, kForever},
                                  {Fault::What::nic, 5, 0.5, 0, kForever}};
  const Scenario s = four_copies();
  const std::string with = record(s, true, faults);
  CHECK(with == record(s, false, faults));
  CHECK(with != record(s, true));
}

TEST_CASE("counts that are summed over all copies count each of them") {
  Scenario s = four_copies();
  s.routing.source = "learned";
  s.routing.without_numerics = "W8";
  s.model_config.moe_layer_config.aux_loss_scope = "global_batch";
  s.model_config.moe_layer_config.bias_update_rate = 0.001;
  CHECK(record(s, true) == record(s, false));
}

TEST_CASE("a run that shares programs ends when it is told to") {
  const Scenario s = four_copies();
  const std::string stopped = record(s, true, {}, 2);
  CHECK(stopped == record(s, false, {}, 2));
  CHECK(stopped.find("\"steps_done\": 2") != std::string::npos);
}
