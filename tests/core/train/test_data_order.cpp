#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "core/train/data_order.h"

using namespace moetwin;

TEST_CASE("the permutation is one, for every size") {
  for (int64_t n : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4097}) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = permuted(9, 2, n, i);
      REQUIRE((at >= 0 && at < n));
      seen.insert(at);
    }
    CHECK(static_cast<int64_t>(seen.size()) == n);
  }
}

TEST_CASE("the permutation mixes: few fixed points, every place equally likely") {
  // Over many epochs, the image of 0 in [0, 8) is uniform: chi-square of 4,000 draws, 7 degrees of
  // freedom; 29.9 is exceeded once in 10,000.
  std::vector<double> hits(8);
  for (uint64_t epoch = 0; epoch < 4000; ++epoch)
    ++hits[static_cast<size_t>(permuted(1, epoch, 8, 0))];
  double chi = 0;
  for (double h : hits) chi += (h - 500) * (h - 500) / 500;
  CHECK(chi < 29.9);
  int64_t fixed = 0, neighbours = 0;
  for (int64_t i = 0; i + 1 < 10000; ++i) {
    fixed += permuted(1, 0, 10000, i) == i;
    neighbours += permuted(1, 0, 10000, i) + 1 == permuted(1, 0, 10000, i + 1);
  }
  CHECK(fixed < 10);  // Poisson with mean 1
  CHECK(neighbours < 10);
}

TEST_CASE("an epoch shows every sequence once; a batch goes on into the next epoch") {
  const int64_t n = 10, batch = 4;
  const BatchOrder order(5, n, batch);
  std::vector<int64_t> row;
  for (int64_t step = 1; step <= 5; ++step)
    for (int64_t i = 0; i < batch; ++i) row.push_back(order.sequence(step, i));
  CHECK(std::set<int64_t>(row.begin(), row.begin() + 10).size() == 10);
  CHECK(std::set<int64_t>(row.begin() + 10, row.end()).size() == 10);
  CHECK(std::vector<int64_t>(row.begin(), row.begin() + 10) !=
        std::vector<int64_t>(row.begin() + 10, row.end()));
  CHECK(order.epoch(1) == 0);
  CHECK(order.epoch(3) == 0);  // places 8 to 11: begins in epoch 0
  CHECK(order.epoch(4) == 1);
}

TEST_CASE("any step on its own, another seed another order", "[P144]") {
  const BatchOrder all(5, 1000, 8), resumed(5, 1000, 8), other(6, 1000, 8);
  int64_t same = 0;
  for (int64_t step = 1; step <= 20; ++step)
    for (int64_t i = 0; i < 8; ++i) same += all.sequence(step, i) == other.sequence(step, i);
  CHECK(same < 10);
  CHECK(resumed.sequence(17, 3) == all.sequence(17, 3));
}
