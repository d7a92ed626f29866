// The search for a layout, on costs written here.

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "analysis/plan/bounds.h"
#include "analysis/plan/front.h"
#include "analysis/plan/parallel.h"
#include "analysis/plan/render.h"
#include "analysis/plan/search.h"
#include "analysis/plan/validated.h"
#include "core/base/error.h"
#include "core/record/json_text.h"
#include "core/scenario/model_size.h"
#include "core/scenario/read.h"

namespace moetwin {
namespace {

Scenario small(const std::vector<std::string>& overrides = {}) {
  return parse_scenario(R"({
    "model_config": {"hidden_size": 64, "num_layers": 4, "num_attention_heads": 4, "vocab_size": 128,
                     "sequence_length": 32, "moe_layer_config": {"num_experts": 8, "expert_hidden_size": 64}},
    "distributed_config": {"world_size": 8, "data_parallel_size": 8},
    "training_config": {"global_batch_size": 16, "numerics": "none"},
    "data": {"format": "synthetic"}})",
                        "small.json", overrides);
}

// Faster with more EP, slower with more TP and PP and with every recompute; memory falls with TP,
// PP, EP and recompute.
PlanFigures made_up(const Scenario& s) {
  const DistributedConfig& d = s.distributed_config;
  const std::string& recompute = s.training_config.recompute;
  const double again = recompute == "full" ? 1.3 : recompute == "selective" ? 1.1 : 1;
  PlanFigures f;
  f.step_seconds = again * static_cast<double>(d.tensor_parallel_size * d.pipeline_parallel_size) /
                   static_cast<double>(d.expert_parallel_size);
  f.tokens_per_second = 1 / f.step_seconds;
  f.peak_bytes =
      static_cast<int64_t>(1e9 / again /
                           static_cast<double>(d.tensor_parallel_size * d.pipeline_parallel_size *
                                               d.expert_parallel_size));
  f.parts[Part::compute] = f.step_seconds;
  return f;
}

TEST_CASE("the space has the sizes that go with the world, the heads, the layers and the experts") {
  const PlanSpace space = plan_space(small(), 4);
  CHECK(space.tp == std::vector<int64_t>{1, 2, 4});     // 8 is more than a node
  CHECK(space.pp == std::vector<int64_t>{1, 2, 4});     // 8 is more than the layers
  CHECK(space.ep == std::vector<int64_t>{1, 2, 4, 8});  // all divide 8 experts
  CHECK(space.micro_batch == std::vector<int64_t>{1, 2, 4, 8, 16});
  CHECK(space.sharding.back() == "HYBRID_SHARD");                 // 2 nodes
  CHECK(plan_space(small(), 8).sharding.back() == "FULL_SHARD");  // one node
  CHECK(plan_space(small({"model_config.num_attention_heads=1"}), 4).tp == std::vector<int64_t>{1});
}

TEST_CASE("layouts are all factorings of the world into both grids") {
  const Scenario scenario = small();
  int expected = 0;
  for (const int64_t pp : {1, 2, 4})
    for (const int64_t tp : {1, 2, 4})
      for (const int64_t ep : {1, 2, 4, 8})
        for (const int64_t etp : tp == 1 ? std::set<int64_t>{1} : std::set<int64_t>{1, tp})
          expected += 8 % (tp * pp) == 0 && 8 % (ep * etp * pp) == 0;
  const auto layouts = plan_layouts(plan_space(scenario, 4), scenario);
  CHECK(layouts.size() == static_cast<size_t>(expected));
  for (const PlanLayout& l : layouts) CHECK(l.edp * l.ep * l.etp * l.pp == 8);
}

TEST_CASE("what fits is ranked by throughput and recompute is tried only where it must be") {
  const Scenario scenario = small();
  int64_t calls = 0;
  const EstimateStep counted = [&](const Scenario& s) {
    ++calls;
    return made_up(s);
  };
  const PlanSearch all =
      search_plan(scenario, plan_space(scenario, 8), {8, 2'000'000'000}, counted);
  REQUIRE_FALSE(all.fitting.empty());
  // EP 8 without TP and PP: 1/8 of a second.
  CHECK(all.fitting[0].point.layout == PlanLayout{1, 1, 8, 1, 1});
  CHECK(all.fitting[0].figures.step_seconds == Approx(0.125));
  for (const PlanResult& r : all.fitting) CHECK(r.point.recompute == "none");
  CHECK(all.estimated <= calls);  // the bounds of what gathers weights are asked for too
  CHECK(all.too_large == 0);
  CHECK(all.combinations == all.estimated + all.refused + all.state_too_large + all.slower_by_rule +
                                all.beaten + all.dominated);

  // With 1e8 bytes EP 8 needs 1.25e8 without recompute, 1.14e8 with selective, 0.96e8 with full.
  const PlanSearch tight =
      search_plan(scenario, plan_space(scenario, 8), {8, 100'000'000}, counted);
  REQUIRE_FALSE(tight.fitting.empty());
  CHECK(tight.fitting[0].point.layout == PlanLayout{1, 1, 8, 1, 1});
  CHECK(tight.fitting[0].point.recompute == "full");
  CHECK(tight.too_large > 0);
  CHECK(tight.fitting[0].figures.step_seconds == Approx(1.3 / 8));
}

TEST_CASE("where nothing fits the closest is known, and what its state alone needs") {
  const Scenario scenario = small();
  const PlanSearch none = search_plan(scenario, plan_space(scenario, 8), {8, 1000}, made_up);
  CHECK(none.fitting.empty());
  CHECK(none.estimated == 0);
  CHECK(none.state_too_large > 0);
  REQUIRE(none.closest);
  // No layout spreads the state over more than 8 GPUs: weights, gradients and AdamW take 16 bytes a
  // parameter.
  const double least = 16.0 * static_cast<double>(model_parameters(scenario).total()) / 8;
  CHECK(static_cast<double>(none.closest->figures.peak_bytes) >= least);
  CHECK(static_cast<double>(none.closest->figures.peak_bytes) < 2 * least);
  PlanContext context;
  context.scenario = &scenario;
  context.machine = {8, 1000};
  const std::string text = nothing_fits_text(context, none);
  CHECK(text.find("Nothing fits. Closest: ") != std::string::npos);
  CHECK(text.find("for weights, gradients and optimizer alone") != std::string::npos);
}

TEST_CASE("a key can be held to some values") {
  const Scenario scenario = small();
  PlanSpace space = plan_space(scenario, 8);
  narrow(space, parse_axis("distributed_config.expert_parallel_size=2"));
  narrow(space, parse_axis("model_config.moe_layer_config.capacity_factor=null,1.25"));
  const PlanSearch search = search_plan(scenario, space, {8, 2'000'000'000}, made_up);
  for (const PlanResult& r : search.fitting) CHECK(r.point.layout.ep == 2);
  CHECK_THROWS_AS(narrow(space, parse_axis("training_config.seed=1")), Error);
  CHECK_THROWS_AS(narrow(space, parse_axis("training_config.recompute=some")), Error);
  CHECK_THROWS_AS(narrow(space, parse_axis("training_config.micro_batch_size=0")), Error);
  narrow(space, parse_axis("distributed_config.expert_parallel_size=3"));
  CHECK_THROWS_AS(search_plan(scenario, space, {8, 2'000'000'000}, made_up), Error);
}

TEST_CASE("a plan may choose how experts are rebalanced") {
  const Scenario scenario = small();
  PlanSpace space = plan_space(scenario, 8);
  CHECK(space.rebalancing == std::vector<std::string>{"none"});
  narrow(space, parse_axis("rebalancing.kind=none,replication,spill"));
  // Spilling gains a tenth of the step.
  const EstimateStep estimate = [](const Scenario& s) {
    PlanFigures f = made_up(s);
    if (s.rebalancing.kind != "spill") return f;
    f.step_seconds *= 0.9;
    f.tokens_per_second /= 0.9;
    return f;
  };
  const PlanSearch search = search_plan(scenario, space, {8, 2'000'000'000}, estimate);
  std::map<std::string, int64_t> seen;
  for (const PlanResult& r : search.fitting) {
    ++seen[r.point.rebalancing];
    if (r.point.layout.ep == 1) CHECK(r.point.rebalancing == "none");
    if (r.point.rebalancing != "replication") continue;
    // One replica on each rank.
    CHECK(planned(scenario, r.point).rebalancing.redundant_experts == r.point.layout.ep);
  }
  CHECK(seen["none"] > 0);
  CHECK(seen["replication"] > 0);
  CHECK(seen["spill"] > 0);
  CHECK_THROWS_AS(narrow(space, parse_axis("rebalancing.kind=some")), Error);
}

TEST_CASE("processes find what one search finds") {
  const Scenario scenario = small();
  const PlanSpace space = plan_space(scenario, 8);
  const PlanMachine machine{8, 100'000'000};
  const PlanSearch one = search_plan(scenario, space, machine, made_up);
  const PlanSearch many = search_plan_in_processes(
      scenario, space, machine, [] { return EstimateStep(made_up); }, 3);
  CHECK(many.combinations == one.combinations);
  CHECK(many.refused_by == one.refused_by);
  CHECK(many.too_large == one.too_large);
  REQUIRE(many.fitting.size() == one.fitting.size());
  for (size_t i = 0; i < one.fitting.size(); ++i) {
    CHECK(plan_overrides(scenario, many.fitting[i].point) ==
          plan_overrides(scenario, one.fitting[i].point));
    CHECK(many.fitting[i].figures.peak_bytes == one.fitting[i].figures.peak_bytes);
    CHECK(many.fitting[i].figures.parts.total() == one.fitting[i].figures.parts.total());
  }
  REQUIRE(many.closest.has_value() == one.closest.has_value());
  CHECK(many.closest->figures.peak_bytes == one.closest->figures.peak_bytes);
}

TEST_CASE("the front has what none beats in throughput, memory and dropped tokens at once") {
  const auto result = [](double rate, int64_t bytes, double dropped) {
    PlanResult r;
    r.figures.tokens_per_second = rate;
    r.figures.peak_bytes = bytes;
    r.figures.dropped_share = dropped;
    return r;
  };
  const std::vector<PlanResult> all{result(10, 100, 0.1), result(9, 100, 0.1), result(8, 100, 0),
                                    result(7, 50, 0.2), result(6, 120, 0)};
  const auto front = pareto_front(all, 0);
  REQUIRE(front.size() == 3);
  CHECK(front[0].figures.tokens_per_second == 10);
  CHECK(front[1].figures.tokens_per_second == 8);
  CHECK(front[2].figures.tokens_per_second == 7);
  // Nobody is slower for less memory than he has anyway.
  CHECK(pareto_front(all, 100).size() == 2);
}

TEST_CASE("a bound hides what another schedule, overlap or sharding may hide, and no more") {
  PlanFigures f;
  f.step_seconds = 10;
  f.tokens_per_second = 100;  // 1,000 tokens a step
  f.parts[Part::bubble] = 2;
  f.parts[Part::all_to_all] = 3;
  f.parts[Part::other_communication] = 1;
  f.parts.optimizer = 0.5;
  f.peak_bytes = 1000;
  f.lasting_bytes = 400;
  // A hundredth is left for what the bound does not know.
  CHECK(promise(f, {}) == Approx(1000 / (0.99 * 10)));
  // Busy 8 s; without the exchange 5 s, and a stage waits 2 / 8 of what it does.
  CHECK(promise(f, {true, false, 0}) == Approx(1000 / (0.99 * 5 * 1.25)));
  // Half the bubble: 8 s and 1 s.
  CHECK(promise(f, {false, false, 0.5}) == Approx(1000 / (0.99 * 9)));
  // Gathered weights: 8 - 1 - 0.5 s busy.
  CHECK(promise(f, {false, true, 0}) == Approx(1000 / (0.99 * 6.5 * 1.25)));
  // Of 600 bytes that come and go nine tenths where weights are gathered, else all but a hundredth.
  CHECK(least_bytes(f, 300, {}) == Approx(300 + 0.99 * 600));
  CHECK(least_bytes(f, 300, {false, true, 0}) == Approx(300 + 0.9 * 600));
  // Interleaving with 4 chunks keeps a fourth of the bubble, ZB-H1 a third.
  CHECK(hidden_bubble("1f1b", 1) == 0);
  CHECK(hidden_bubble("interleaved_1f1b", 4) >= 1 - 1.0 / 4);
  CHECK(hidden_bubble("zb_h1", 1) >= 1 - 1.0 / 3);
  CHECK(hidden_bubble("zb_h1", 1) < 1);
}

TEST_CASE("certainty is that of two normal errors") {
  CHECK(chance_faster(1, 1, 0.05) == Approx(0.5));
  // sigma = 0.05 / 0.6745 = 0.07413; ln 1.1 / (sqrt(2) x 0.07413) = 0.9091; Phi(0.9091) = 0.8183.
  CHECK(chance_faster(1, 1.1, 0.05) == Approx(0.8183).margin(2e-4));
  CHECK(chance_faster(1.1, 1, 0.05) == Approx(1 - 0.8183).margin(2e-4));
  CHECK(chance_faster(1, 1.1, 0) == 1);
  // 1e12 tokens at 1e6 a second on 256 GPUs: 1e6 s x 256 / 3600.
  CHECK(gpu_hours(1e12, 1e6, 256) == Approx(71111.1).epsilon(1e-6));
}

TEST_CASE("the winner is a scenario that extends the one it was planned for") {
  const Scenario scenario = small();
  const auto folder = std::filesystem::temp_directory_path() / "moetwin-test-plan-winner";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "base.json") << json_text(scenario_to_json(scenario));
  PlanResult winner;
  winner.point.layout = {2, 2, 2, 1, 2};
  winner.point.schedule = "zb_h1";
  winner.point.sharding = "SHARD_OPTIMIZER";
  winner.point.capacity_factor = 1.25;
  winner.figures.step_seconds = 1;
  PlanContext context;
  context.scenario = &scenario;
  std::ofstream(folder / "winner.json") << winner_text(context, winner, "base.json");
  const Scenario read = read_scenario((folder / "winner.json").string());
  CHECK(scenario_to_json(read) == scenario_to_json([&] {
          Scenario s = planned(scenario, winner.point);
          s.description = read.description;
          s.name = read.name;
          return s;
        }()));
  std::filesystem::remove_all(folder);
}

TEST_CASE("the validated error is read where it was written") {
  const auto folder = std::filesystem::temp_directory_path() / "moetwin-test-plan-validated";
  std::filesystem::create_directories(folder / "data");
  std::ofstream(folder / "data/validated.json")
      << R"({"kinds": {"moe_training": {"median_abs_error": 0.07, "expressed": 75}}})";
  const ValidatedError error = validated_error({"/nowhere", folder.string()}, true);
  CHECK(error.median == 0.07);
  CHECK(error.source == "moetwin validate, 75 published rows of moe_training");
  CHECK(validated_error({folder.string()}, false).median == 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace moetwin
