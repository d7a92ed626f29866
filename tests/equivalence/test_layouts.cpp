// Every layout must train exactly what one rank trains (semantics 2): gradients of equal weights
// and ten steps with clipping active, in fp64 to 1e-9. A pairwise cover by default; the whole
// product with MOETWIN_ALL_LAYOUTS=1, every n-th of it with MOETWIN_ALL_LAYOUTS=n, from the k-th on
// (k < n) with MOETWIN_ALL_LAYOUTS=n+k, so that several machines can share it.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>

#include "tests/equivalence/same_training.h"
#include "tests/equivalence/sharded_layouts.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

constexpr int64_t kSteps = 10;
constexpr size_t kShards = 4;

const std::vector<ShardedLayout>& layouts_under_test() {
  static const std::vector<ShardedLayout> layouts = [] {
    const char* every = std::getenv("MOETWIN_ALL_LAYOUTS");
    if (!every) return shard_cover(pairwise_cover());
    const std::vector<ShardedLayout> all = shard_in_turns(whole_product());
    std::vector<ShardedLayout> some;
    char* after = nullptr;
    const size_t step = std::max<size_t>(1, std::strtoul(every, &after, 10));
    for (size_t i = *after == '+' ? std::strtoul(after + 1, nullptr, 10) : 0; i < all.size();
         i += step)
      some.push_back(all[i]);
    return some;
  }();
  return layouts;
}

void check_layout(const ShardedLayout& layout, const TrainResult& expected) {
  INFO(layout.name());
  TrainRunOptions options;
  options.change_profile = [gpus = layout.gpus_per_node()](ClusterProfile& profile) {
    profile.gpus_per_node = profile.nics_per_node = gpus;
  };
  options.timeout_seconds = 1800;  // the whole product runs for hours, beside other work
  try {
    check_same_training(train_in_child(layout.scenario(kSteps), options), expected, kSteps);
  } catch (const std::exception& e) {
    FAIL_CHECK(e.what());  // the layouts after this one are to be seen too
  }
}

void check_shard(size_t shard) {
  std::map<std::string, TrainResult> references;
  const std::vector<ShardedLayout>& layouts = layouts_under_test();
  for (size_t i = 0; i < layouts.size(); ++i) {
    const Layout& layout = layouts[i].layout;
    // Layouts with one reference fall into one shard.
    if (std::hash<std::string>{}(reference_key(layout)) % kShards != shard) continue;
    auto reference = references.find(reference_key(layout));
    if (reference == references.end())
      reference =
          references
              .emplace(reference_key(layout), train_in_child(reference_scenario(layout, kSteps)))
              .first;
    const TrainResult& expected = reference->second;
    check_layout(layouts[i], expected);
    // Clipping is active.
    for (const double norm : expected.gradient_norms) CHECK(norm > 0.05);
  }
}

}  // namespace

TEST_CASE("the cover is small") { CHECK(shard_cover(pairwise_cover()).size() <= 300); }
TEST_CASE("the cover has a cross-section of sixty with every level of every factor") {
  const auto cover = shard_cover(pairwise_cover());
  const auto section = cross_section(cover, 60);
  CHECK(section.size() == 60);
  CHECK(levels_met(section) == levels_met(cover));
  for (const char* level : {"sharding FULL_SHARD", "sharding HYBRID_SHARD", "recompute full",
                            "folded", "sequence", "overlap", "TP=4", "pipeline=zb-4"})
    CHECK(levels_met(section).count(level) == 1);
}
TEST_CASE("what a router keeps for its backward holds no gathered weights") {
  // One of 204 layouts whose next gather wrote where nothing ordered it after the last reader.
  const std::string name =
      "DP=3 EP=1 TP=2 ETP=2 E=8 k=4 capacity=probability accumulation=2 micro-batch=2 zero=1 adamw "
      "no-overlap no-pairs modern pipeline=none FULL_SHARD recompute=full";
  const std::vector<ShardedLayout> all = shard_in_turns(whole_product());
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const ShardedLayout& l) { return l.name() == name; });
  REQUIRE(found != all.end());
  check_layout(*found, train_in_child(reference_scenario(found->layout, kSteps)));
}
TEST_CASE("layouts train what one rank trains, part 1", "[part1]") { check_shard(0); }
TEST_CASE("layouts train what one rank trains, part 2", "[part2]") { check_shard(1); }
TEST_CASE("layouts train what one rank trains, part 3", "[part3]") { check_shard(2); }
TEST_CASE("layouts train what one rank trains, part 4", "[part4]") { check_shard(3); }
