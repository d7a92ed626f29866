// What a plan leaves out unseen must not have been on the front: compared with every point
// estimated.

#include <algorithm>
#include <catch2/catch.hpp>

#include "analysis/plan/front.h"
#include "analysis/plan/search.h"
#include "cli/estimates.h"
#include "cli/machines.h"
#include "core/scenario/read.h"

namespace moetwin {
namespace {

/// Every point of the space that fits, in three passes that know of nothing.
std::vector<PlanResult> exhaustive(const Scenario& scenario, const PlanSpace& space,
                                   const PlanMachine& machine, const EstimateStep& estimate) {
  std::vector<PlanResult> fitting;
  for (const PlanLayout& layout : plan_layouts(space, scenario))
    for (const PlanPass pass : {PlanPass::simple, PlanPass::gathering, PlanPass::rest}) {
      const PlanSearch part =
          search_layout(scenario, space, {layout, pass, nullptr, {}}, machine, estimate);
      CHECK(part.dominated == 0);
      fitting.insert(fitting.end(), part.fitting.begin(), part.fitting.end());
    }
  return fitting;
}

bool is_among(const std::vector<PlanResult>& found, const PlanResult& wanted) {
  const PlanFigures& w = wanted.figures;
  return std::any_of(found.begin(), found.end(), [&](const PlanResult& r) {
    return r.figures.tokens_per_second == Approx(w.tokens_per_second).epsilon(1e-9) &&
           r.figures.peak_bytes == w.peak_bytes && r.figures.dropped_share == w.dropped_share;
  });
}

void check_front(const std::string& model, const std::string& training, bool schedules) {
  INFO(model << training);
  const Scenario scenario = parse_scenario(R"({"model_config": {)" + model + R"(},
          "distributed_config": {"world_size": 32, "data_parallel_size": 32},
          "training_config": {"numerics": "none", "dtype": "bf16", )" +
                                               training + R"(},
          "cluster": {"profile": "dgx-a100-80g"}, "data": {"format": "synthetic"}})",
                                           "planned.json");
  const ClusterProfile profile = machine_profile(scenario);
  const EstimateStep estimate = estimates(profile);
  PlanSpace space = plan_space(scenario, profile.gpus_per_node);
  space.micro_batch = {1, 4};
  if (schedules) {
    space.tp = {1, 4};
    space.pp = {1, 2, 8};
  } else {
    space.schedule = {"1f1b"};
    space.overlap = {false};
  }
  const PlanMachine machine{profile.gpus_per_node, static_cast<int64_t>(profile.gpu.memory.value)};
  const std::vector<PlanResult> all = exhaustive(scenario, space, machine, estimate);
  const PlanSearch found = search_plan(scenario, space, machine, estimate);
  REQUIRE_FALSE(all.empty());
  CHECK(found.dominated > 0);
  for (const PlanResult& r : pareto_front(all, machine.ample_bytes()))
    CHECK(is_among(found.fitting, r));
}

TEST_CASE("what a plan leaves out as dominated was not on the front") {
  // Dense; with experts; and so large that most points do not fit.
  check_front(
      R"("hidden_size": 1024, "num_layers": 8, "num_attention_heads": 16, "vocab_size": 32000,
                 "sequence_length": 1024)",
      R"("global_batch_size": 256)", false);
  check_front(
      R"("hidden_size": 1024, "num_layers": 8, "num_attention_heads": 16, "vocab_size": 32000,
                 "sequence_length": 1024, "moe_layer_config": {"num_experts": 8, "expert_hidden_size": 2048})",
      R"("global_batch_size": 128)", true);
  check_front(
      R"("hidden_size": 4096, "num_layers": 32, "num_attention_heads": 32, "vocab_size": 32000,
                 "sequence_length": 2048, "moe_layer_config": {"num_experts": 8, "expert_hidden_size": 4096})",
      R"("global_batch_size": 128)", true);
}

}  // namespace
}  // namespace moetwin
