#include <catch2/catch.hpp>
#include <cmath>

#include "core/record/routing_metrics.h"

using namespace moetwin;

TEST_CASE("routing metrics by hand") {
  // n = 6, 2, 0, 8: mean 4, deviations 2, -2, -4, 4: variance (4 + 4 + 16 + 16) / 4 = 10.
  const RoutingMetrics m = routing_metrics({6, 2, 0, 8}, 12, {8, 8});
  CHECK(m.load_cv == Approx(std::sqrt(10.0) / 4));
  CHECK(m.imbalance_experts == Approx(2));
  CHECK(m.imbalance_ranks == Approx(1));
  // Shares 3/8, 1/8, 1/2.
  const double h = 3 / 8. * std::log(8 / 3.) + 1 / 8. * std::log(8.) + 1 / 2. * std::log(2.);
  CHECK(m.entropy == Approx(h / std::log(4.)));
  CHECK(m.dead_share == Approx(0.25));
  CHECK(m.dropped_share == Approx(0.25));
}

TEST_CASE("balanced: CV 0, factors 1, entropy 1") {
  const RoutingMetrics m = routing_metrics({5, 5, 5}, 15, {5, 5, 5});
  CHECK(m.load_cv == 0);
  CHECK(m.imbalance_experts == 1);
  CHECK(m.entropy == Approx(1));
  CHECK(m.dead_share == 0);
  CHECK(m.dropped_share == 0);
}

TEST_CASE("collapse: every token on one expert", "[P177]") {
  const RoutingMetrics m = routing_metrics({0, 24, 0, 0}, 24, {24, 0});
  CHECK(m.imbalance_experts == 4);
  CHECK(m.imbalance_ranks == 2);
  CHECK(m.entropy == 0);
  CHECK(m.dead_share == 0.75);
}

TEST_CASE("eight ranks, all choices on two experts of one: four times the mean", "[P175]") {
  // W=8, EP=8, E=8, 4,096 tokens a rank, k=2, all to experts 0 and 1: 32,768 each of 65,536.
  const RoutingMetrics m =
      routing_metrics({32768, 32768, 0, 0, 0, 0, 0, 0}, 65536, {32768, 32768, 0, 0, 0, 0, 0, 0});
  CHECK(m.imbalance_ranks == 4.0);
}

TEST_CASE("dead is below a hundredth of the mean, not at it") {
  // Mean 100: 1 is exactly a hundredth.
  CHECK(routing_metrics({199, 1}, 200, {}).dead_share == 0);
  CHECK(routing_metrics({200, 0}, 200, {}).dead_share == 0.5);
}

TEST_CASE("no assignments, one expert") {
  const RoutingMetrics none = routing_metrics({0, 0}, 0, {0, 0});
  CHECK(none.load_cv == 0);
  CHECK(none.imbalance_experts == 1);
  CHECK(none.entropy == 1);
  CHECK(none.dropped_share == 0);
  CHECK(routing_metrics({7}, 7, {7}).entropy == 1);
}
