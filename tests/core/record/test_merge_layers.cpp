#include <catch2/catch.hpp>
#include <cmath>

#include "core/record/merge_layers.h"
#include "tests/core/topology/sizes_of.h"

using namespace moetwin;

namespace {

LayerStep layer(int64_t number, std::vector<int64_t> counts) {
  LayerStep step;
  step.layer = number;
  step.tokens = 8;
  step.counts = std::move(counts);
  return step;
}

}  // namespace

TEST_CASE("layers over ranks: sums, means by share, loads of ranks by EP group") {
  // EP groups {0,1} and {2,3}; experts 0 and 1 on the first rank of each, 2 and 3 on the second.
  const Grid grid(sizes_of({.world = 4, .dp = 2, .ep = 2}), 4, 64);
  LayerMerge merge(grid);
  LayerStep a = layer(1, {4, 2, 1, 1}), b = layer(1, {2, 2, 2, 2}), c = layer(1, {0, 0, 4, 4}),
            d = layer(1, {2, 0, 3, 3});
  b.kept = {1, 2, 2, 2};
  a.probability = {4, 2, 1, 1}, b.probability = c.probability = d.probability = {2, 2, 2, 2};
  a.aux = 0.25, b.aux = 0.25, c.aux = 0.35, d.aux = 0.3;
  merge.add(0, {a}), merge.add(1, {b}), merge.add(2, {c}), merge.add(3, {d});
  const std::vector<LayerRow> rows = merge.rows();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].counts == std::vector<int64_t>{8, 4, 10, 10});
  CHECK(rows[0].kept == std::vector<int64_t>{7, 4, 10, 10});
  CHECK(rows[0].tokens == 32);
  CHECK(rows[0].aux == Approx(1.15));
  CHECK(rows[0].probability == std::vector<double>{10 / 32., 8 / 32., 7 / 32., 7 / 32.});
  CHECK(rows[0].metrics.imbalance_experts == Approx(10 / 8.));
  CHECK(rows[0].metrics.dropped_share == Approx(1 / 32.));
  // Ranks get: group {0,1}: 4+2+2+2 = 10 and 6; group {2,3}: 2 and 14. Mean 8.
  CHECK(rows[0].metrics.imbalance_ranks == Approx(14 / 8.));
  CHECK_FALSE(rows[0].probe.has_value());
}

TEST_CASE("hidden rows get the same tokens: a column counts once for its group") {
  // EP 4 over 2 experts: columns 0 and 1, hidden rows 0 and 1.
  const Grid grid(sizes_of({.world = 4, .dp = 1, .ep = 4}), 2, 64);
  LayerMerge merge(grid);
  for (int64_t rank = 0; rank < 4; ++rank) merge.add(rank, {layer(0, {6, 2})});
  CHECK(merge.rows()[0].metrics.imbalance_ranks == Approx(24 / 16.));
}

TEST_CASE("stages have their own layers; one without scores leaves the mean unknown", "[P038]") {
  const Grid grid(sizes_of({.world = 2, .dp = 1, .ep = 1, .pp = 2}), 2, 64);
  LayerMerge merge(grid);
  LayerStep late = layer(3, {4, 4});
  late.probability = {4, 4};
  merge.add(0, {layer(1, {8, 0})});
  merge.add(1, {late});
  const std::vector<LayerRow> rows = merge.rows();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].layer == 1);
  CHECK(rows[0].probability.empty());
  CHECK(rows[1].layer == 3);
  CHECK(rows[1].probability == std::vector<double>{0.5, 0.5});
}
