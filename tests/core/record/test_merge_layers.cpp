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

RankStep of_rank(int64_t rank, std::vector<LayerStep> layers) {
  RankStep step;
  step.rank = rank;
  step.layers = std::move(layers);
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
  merge.add(of_rank(0, {a})), merge.add(of_rank(1, {b}));
  merge.add(of_rank(2, {c})), merge.add(of_rank(3, {d}));
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
  for (int64_t rank = 0; rank < 4; ++rank) merge.add(of_rank(rank, {layer(0, {6, 2})}));
  CHECK(merge.rows()[0].metrics.imbalance_ranks == Approx(24 / 16.));
}

TEST_CASE("stages have their own layers; one without scores leaves the mean unknown", "[P038]") {
  const Grid grid(sizes_of({.world = 2, .dp = 1, .ep = 1, .pp = 2}), 2, 64);
  LayerMerge merge(grid);
  LayerStep late = layer(3, {4, 4});
  late.probability = {4, 4};
  merge.add(of_rank(0, {layer(1, {8, 0})}));
  merge.add(of_rank(1, {late}));
  const std::vector<LayerRow> rows = merge.rows();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].layer == 1);
  CHECK(rows[0].probability.empty());
  CHECK(rows[1].layer == 3);
  CHECK(rows[1].probability == std::vector<double>{0.5, 0.5});
}

TEST_CASE("a TP group whose slices go to several copies of the experts: ranks tell what they get") {
  // TP 4, whole experts, EP 2: ranks {0,1} and {2,3} each exchange the slices of their own tokens.
  // Of 16 assignments to experts 0 and 1 the first slices have 6 and 2, the others 1 and 7.
  DistributedConfig config = sizes_of({.world = 4, .dp = 1, .ep = 2, .tp = 4});
  config.expert_tensor_parallel_size = 1;
  config.parallel_folding = true;
  const Grid grid(config, 2, 64);
  CHECK(grid.parts_tp_groups());
  CHECK_FALSE(Grid(sizes_of({.world = 4, .dp = 1, .ep = 2, .tp = 2}), 2, 64).parts_tp_groups());
  LayerMerge merge(grid);
  std::vector<RankStep> steps{of_rank(0, {layer(0, {7, 9})}), of_rank(1, {}), of_rank(2, {}),
                              of_rank(3, {})};
  const std::vector<int64_t> rows{6, 2, 1, 7};
  for (size_t r = 0; r < 4; ++r) {
    steps[r].received[0] = rows[r];
    merge.add(steps[r]);
  }
  CHECK(merge.rows()[0].metrics.imbalance_ranks == Approx(7 / 4.));
  CHECK(merge.rows()[0].metrics.imbalance_experts == Approx(9 / 8.));
}
