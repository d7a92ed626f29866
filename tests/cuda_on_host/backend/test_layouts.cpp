// Layouts on the real backend, emulated: each trains what one rank trains, and issues what the
// modelled cluster issues.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <map>

#include "tests/cuda_on_host/backend/routing_log.h"
#include "tests/cuda_on_host/backend/training.h"
#include "tests/equivalence/sharded_layouts.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

constexpr size_t kCrossSection = 60;

// Real GPUs have no fp64.
Scenario in_fp32(Scenario s) {
  s.training_config.dtype = "fp32";
  return s;
}

// Closer than this to its next expert a token may go to either: rounding decides.
constexpr float kTie = 1e-5F;

struct Reference {
  int64_t seed = 0;
  TrainResult one_rank;
};

// The closest that any token of the scenario comes to another choice of experts.
float closest_margin(const Scenario& scenario) {
  RoutingLog log;
  TrainRunOptions options;
  options.tensors = options.check_access = false;
  options.cluster = [&](const Scenario& s) {
    return watch_routing(modelled_gpus(s), log, std::numeric_limits<size_t>::max());
  };
  options.say = [&] { return to_bytes(log); };
  float closest = 1;
  for (const auto& [rank, calls] : routing_log(train_in_child(scenario, options).text))
    for (const RoutingCall& call : calls)
      for (const float margin : call.margins) closest = std::min(closest, margin);
  return closest;
}

// What one rank trains, with the first seed that leaves no token undecided.
Reference reference_of(const Layout& layout) {
  Scenario s = in_fp32(reference_scenario(layout, 1));
  while (closest_margin(s) <= kTie) ++s.training_config.seed;
  return {s.training_config.seed, train_with_ops(s, emulated_gpus, true)};
}

void check_layout(const ShardedLayout& layout, std::map<std::string, Reference>& references) {
  INFO(layout.name());
  const std::string key = reference_key(layout.layout);
  if (!references.count(key)) references[key] = reference_of(layout.layout);
  const Reference& reference = references.at(key);
  Scenario scenario = in_fp32(layout.scenario(1));
  scenario.training_config.seed = reference.seed;
  const int64_t gpus = layout.gpus_per_node();
  const TrainResult real = train_with_ops(scenario, emulated_nodes(gpus), true),
                    modelled = train_with_ops(scenario, modelled_nodes(gpus), true);
  for (const TrainResult* expected : {&reference.one_rank, &modelled}) {
    const Distance gradients = distance(real.gradients, expected->gradients);
    CAPTURE(expected == &modelled ? "modelled" : "one rank", gradients.where);
    // Orders of summation differ; in fp32 that alone makes 2e-5 of a gradient.
    CHECK(gradients.value <= 5e-5);
    CHECK(loss_distance(real, *expected) <= 1e-5);
    CHECK(real.counts == expected->counts);
  }
  CHECK(real.text.size() > 1000);
  CHECK(first_difference(modelled.text, real.text) == "");
}

// The layouts of the cross-section whose place modulo `of` is `part`.
void check_part(size_t part, size_t of) {
  const auto section = cross_section(shard_cover(pairwise_cover()), kCrossSection);
  REQUIRE(section.size() == kCrossSection);
  std::map<std::string, Reference> references;
  for (size_t i = part; i < section.size(); i += of) check_layout(section[i], references);
}

}  // namespace

TEST_CASE("sixty layouts on both machines and on one rank, first half", "[layouts1]") {
  check_part(0, 2);
}

TEST_CASE("sixty layouts on both machines and on one rank, second half", "[layouts2]") {
  check_part(1, 2);
}
