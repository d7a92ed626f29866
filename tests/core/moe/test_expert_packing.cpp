// EPLB's algorithm: its published example, and what holds for any load.

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <set>

#include "core/base/error.h"
#include "core/moe/rebalancing/expert_packing.h"

using namespace moetwin;

namespace {

std::vector<int64_t> items(const ExpertPacking& packing) {
  std::vector<int64_t> all;
  for (const Copy& c : packing.physical) all.push_back(c.item);
  return all;
}

}  // namespace

TEST_CASE("EPLB: the example of its README") {
  // Loads of two layers of 12 experts in 4 groups; 16 places on 8 GPUs of 2 nodes. Weights and
  // answer: github.com/deepseek-ai/EPLB, README, "Interface and Example".
  const PackingShape shape{16, 4, 2, 8};
  const ExpertPacking first =
      pack_experts({90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86}, shape);
  CHECK(items(first) == std::vector<int64_t>{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1});
  const ExpertPacking second =
      pack_experts({20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}, shape);
  CHECK(items(second) == std::vector<int64_t>{7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1});
  CHECK(first.count == std::vector<int64_t>{1, 2, 1, 1, 2, 2, 1, 1, 1, 1, 2, 1});
}

TEST_CASE("EPLB: copies of any load") {
  std::mt19937 random(7);
  std::lognormal_distribution<double> load(0, 1.2);
  for (const PackingShape& shape :
       {PackingShape{40, 8, 4, 8}, PackingShape{40, 1, 1, 8}, PackingShape{48, 3, 2, 16}}) {
    std::vector<double> weights(32 / shape.groups * shape.groups);
    if (shape.groups == 3) weights.resize(30);
    for (double& w : weights) w = load(random);
    const ExpertPacking packing = pack_experts(weights, shape);
    REQUIRE(packing.physical.size() == static_cast<size_t>(shape.physical));
    std::vector<std::set<int64_t>> ranks(weights.size());
    for (const Copy& c : packing.physical)
      CHECK(ranks[static_cast<size_t>(c.item)].insert(c.rank).second);
    for (size_t e = 0; e < weights.size(); ++e) {
      CHECK(packing.count[e] >= 1);
      CHECK(static_cast<int64_t>(ranks[e].size()) == packing.count[e]);
      CHECK(*ranks[e].rbegin() == packing.count[e] - 1);
    }
    CHECK(std::accumulate(packing.count.begin(), packing.count.end(), int64_t{0}) ==
          shape.physical);
  }
}

TEST_CASE("replicate_heaviest: who gets the copies") {
  // 60 / 2 = 30 is more than 20: the first one gets both.
  const Copies two = replicate_heaviest({60, 20, 10}, 5);
  CHECK(two.count == std::vector<int64_t>{3, 1, 1});
  // With a limit the next one does.
  const Copies limited = replicate_heaviest({60, 20, 10}, 5, 2);
  CHECK(limited.count == std::vector<int64_t>{2, 2, 1});
  // Nobody may get more: fewer copies.
  CHECK(replicate_heaviest({60, 20}, 9, 2).copies.size() == 4);
}

TEST_CASE("EPLB: sizes that do not divide are refused") {
  CHECK_THROWS_AS(pack_experts({1, 2, 3, 4}, {5, 1, 1, 2}), Error);
  CHECK_THROWS_AS(pack_experts({1, 2, 3, 4}, {2, 1, 1, 2}), Error);
}
