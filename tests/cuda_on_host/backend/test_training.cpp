// The whole training on the real backend, emulated, beside the modelled cluster: the same losses
// and routing, the same ops and collectives in the same order; and layouts that train what one rank
// trains.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <mutex>

#include "core/scenario/read.h"
#include "tests/cuda_on_host/backend/ranks.h"
#include "tests/cuda_on_host/runtime/settings.h"
#include "tests/equivalence/layouts.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

TrainRunOptions on_gpus() {
  TrainRunOptions options;
  options.timeout_seconds = 600;
  options.cluster = [](const Scenario& scenario) -> std::unique_ptr<Cluster> {
    emulated::settings().gpus = static_cast<int>(scenario.distributed_config.world_size);
    emulated::settings().delay_chance = 0.01;
    CudaOptions cuda = emulated_options();
    cuda.nvml_library = "none";
    return make_cuda_cluster(scenario, cuda);
  };
  return options;
}

// What each rank did in the last step, in launch order: "gemm@0 1024", "all_reduce[dense_dp]@1 64".
struct Launches {
  explicit Launches(int64_t last_step) : last(last_step) {}
  void see(const RankStep& step) {
    if (step.step != last) return;
    std::vector<Interval> all;
    for (const Interval& i : step.profile.intervals)
      if (i.stream >= 0) all.push_back(i);
    std::sort(all.begin(), all.end(),
              [](const Interval& a, const Interval& b) { return a.order < b.order; });
    std::string text;
    for (const Interval& i : all)
      text += std::string(i.name) + (*i.group ? "[" + std::string(i.group) + "]" : "") + "@" +
              std::to_string(i.stream) + " " + std::to_string(i.bytes) + "\n";
    const std::lock_guard lock(mutex);
    by_rank[step.rank] = text;
  }
  std::string text() const {
    std::string all;
    for (const auto& [rank, list] : by_rank) all += "rank " + std::to_string(rank) + "\n" + list;
    return all;
  }
  const int64_t last;
  std::mutex mutex;
  std::map<int64_t, std::string> by_rank;
};

struct Both {
  TrainResult modelled, real;
};

Both train_both(Scenario scenario) {
  const int64_t steps = scenario.training_config.steps;
  scenario.output.timeline_steps = {steps};
  const auto data = [scenario] { return open_data(scenario); };
  const auto train = [&](TrainRunOptions options) {
    Launches launches(steps);
    options.data = data;
    options.tensors = false;
    options.look_at_rank = [&](const RankStep& step) { launches.see(step); };
    options.say = [&] { return launches.text(); };
    return train_in_child(scenario, options);
  };
  TrainRunOptions modelled;
  modelled.timeout_seconds = 300;
  return {train(modelled), train(on_gpus())};
}

// The first line that differs, with its number.
std::string first_difference(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string l, r;
  for (int line = 1;; ++line) {
    const bool more_left = static_cast<bool>(std::getline(left, l)),
               more_right = static_cast<bool>(std::getline(right, r));
    if (!more_left && !more_right) return "";
    if (!more_left || !more_right || l != r)
      return std::to_string(line) + ": \"" + (more_left ? l : "end") + "\" and \"" +
             (more_right ? r : "end") + "\"";
  }
}

void check_losses(const Both& both, size_t steps) {
  REQUIRE(both.modelled.losses.size() == steps);
  REQUIRE(both.real.losses.size() == steps);
  double worst = 0;
  for (size_t s = 0; s < steps; ++s)
    worst = std::max(worst, std::abs(both.real.losses[s] - both.modelled.losses[s]));
  CHECK(worst <= 1e-4);
  CHECK(both.real.losses.back() < both.real.losses.front());
}

// Assignments that went to another expert, over all steps.
int64_t moved(const Both& both) {
  int64_t moved = 0;
  for (size_t s = 0; s < both.real.counts.size(); ++s)
    for (size_t i = 0; i < both.real.counts[s].size(); ++i)
      moved += std::abs(both.real.counts[s][i] - both.modelled.counts[s][i]);
  return moved / 2;
}

}  // namespace

TEST_CASE("twenty steps of the quickstart on both machines", "[quickstart]") {
  Scenario scenario =
      read_scenario(MOETWIN_SOURCE_SCENARIOS "/quickstart.json", {"training_config.steps=20"});
  const Both both = train_both(scenario);
  check_losses(both, 20);
  // A token whose k-th and (k+1)-th scores lie within rounding of each other may go elsewhere:
  // about one in 200,000 a layer and step, of 160,000 here.
  CHECK(moved(both) <= 8);
  CHECK_FALSE(both.modelled.text.empty());
  CHECK(first_difference(both.modelled.text, both.real.text) == "");
}

TEST_CASE("a hundred steps with the same routing stay together", "[hundred]") {
  Scenario scenario = read_scenario(
      MOETWIN_SOURCE_SCENARIOS "/quickstart.json",
      {"training_config.steps=100", "model_config.num_layers=2", "model_config.hidden_size=32",
       "model_config.sequence_length=16", "model_config.moe_layer_config.expert_hidden_size=32",
       "routing.source=W1", "distributed_config.world_size=4",
       "distributed_config.data_parallel_size=2", "training_config.global_batch_size=8",
       "training_config.micro_batch_size=2", "training_config.validation_sequences=8"});
  const Both both = train_both(scenario);
  check_losses(both, 100);
  CHECK(moved(both) == 0);
}

TEST_CASE("layouts on the real backend train what one rank trains", "[layouts]") {
  // Every so many of the pairwise cover, so that about forty run.
  const std::vector<Layout> cover = pairwise_cover(all_layouts(false));
  const size_t stride = std::max<size_t>(1, cover.size() / 40);
  std::map<std::string, TrainResult> references;
  for (size_t i = 0; i < cover.size(); i += stride) {
    const Layout& layout = cover[i];
    INFO(layout.name());
    const auto in_fp32 = [](Scenario s) {
      s.training_config.dtype = "fp32";
      return s;
    };
    auto reference = references.find(reference_key(layout));
    if (reference == references.end())
      reference = references
                      .emplace(reference_key(layout),
                               train_in_child(in_fp32(reference_scenario(layout, 1)), on_gpus()))
                      .first;
    const TrainResult result = train_in_child(in_fp32(layout_scenario(layout, 1)), on_gpus());
    const Distance gradients = distance(result.gradients, reference->second.gradients);
    CAPTURE(gradients.where);
    CHECK(gradients.value <= 1e-5);
    CHECK(result.losses.at(0) == Approx(reference->second.losses.at(0)).epsilon(1e-5));
    CHECK(result.counts == reference->second.counts);
  }
}
