// Wherever experts work, they train the same: ten steps with each kind of rebalancing against one
// rank, in fp64 to 1e-9, in layouts in which it moves experts.

#include <atomic>
#include <catch2/catch.hpp>

#include "tests/equivalence/rebalanced_layouts.h"
#include "tests/equivalence/same_training.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

constexpr int64_t kSteps = 10;

/// Bytes of weights and of gradients that experts' moves sent, over the run.
struct Moved {
  std::atomic<int64_t> weights{0}, gradients{0};
};

void check(const RebalancedLayout& layout) {
  INFO(layout.name);
  const TrainResult one = train_in_child(reference_scenario(layout.layout, kSteps));
  Moved moved;
  TrainRunOptions options;
  options.look_at_rank = [&moved](const RankStep& step) {
    for (const Traffic& t : step.profile.traffic) {
      if (t.purpose == "expert weights" || t.purpose == "moving experts") moved.weights += t.bytes;
      if (t.purpose == "expert gradients of guests") moved.gradients += t.bytes;
    }
  };
  options.say = [&moved] {
    return std::to_string(moved.weights) + " " + std::to_string(moved.gradients);
  };
  const TrainResult result = train_in_child(layout.scenario(kSteps), options);
  check_same_training(result, one, kSteps);
  CAPTURE(result.text);
  CHECK(std::stoll(result.text) > 0);
  // Whose home has moved does not give anything back.
  const bool guests = layout.rebalancing.kind != "placement";
  CHECK((std::stoll(result.text.substr(result.text.find(' '))) > 0) == guests);
}

void check_kind(const std::string& kind) {
  for (const RebalancedLayout& layout : rebalanced_layouts())
    if (layout.rebalancing.kind == kind) check(layout);
}

}  // namespace

TEST_CASE("rebalanced layouts: placement") { check_kind("placement"); }
TEST_CASE("rebalanced layouts: replication") { check_kind("replication"); }
TEST_CASE("rebalanced layouts: shadowing") { check_kind("shadowing"); }
TEST_CASE("rebalanced layouts: spill") { check_kind("spill"); }
