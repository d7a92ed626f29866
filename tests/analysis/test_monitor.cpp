#include <catch2/catch.hpp>

#include "analysis/stability/monitor.h"
#include "core/base/philox.h"

namespace moetwin {
namespace {

constexpr double kPi = 3.14159265358979323846;

struct Fed {
  StabilityMonitor monitor{StabilityOptions{}};
  std::vector<std::pair<int64_t, Finding>> begun;

  void step(int64_t step, double swing, double churn, double loss = 1) {
    std::vector<int64_t> counts;
    std::vector<double> shares;
    const double c = swing * std::cos(2 * kPi * static_cast<double>(step) / 20);
    for (int e = 0; e < 8; ++e) {
      shares.push_back((1 + (e % 2 ? -c : c)) / 8);
      counts.push_back(std::lround(4000 * shares.back()));
    }
    LayerObservation seen;
    seen.layer = 1;
    seen.counts = &counts;
    seen.probe_shares = &shares;
    seen.churn = step == 1 ? std::nan("") : churn;
    for (const Finding& f : monitor.add(step, loss, {seen})) begun.emplace_back(step, f);
  }
};

}  // namespace

TEST_CASE("the monitor says once that a layer oscillates, within some 300 steps of its onset") {
  Fed fed;
  for (int64_t step = 1; step <= 1600; ++step) {
    const bool sick = step >= 1000;
    fed.step(step, sick ? 0.8 : 0, sick ? 0.15 : 0.003);
    if (step < 1000) CHECK(fed.monitor.first("oscillating") == nullptr);
  }
  REQUIRE(fed.begun.size() == 1);
  CHECK(fed.begun[0].second.kind == "oscillating");
  CHECK(fed.begun[0].second.layer == 1);
  CHECK(fed.begun[0].first > 1100);  // held for ten checks, 160 steps
  CHECK(fed.begun[0].first < 1350);
  REQUIRE(fed.monitor.first("oscillating") != nullptr);
  CHECK(std::abs(fed.monitor.first("oscillating")->onset_step - 1000) <= 16);
  REQUIRE(fed.monitor.holding().size() == 1);
}

TEST_CASE("the monitor leaves a router alone that finds its way, and a calm one") {
  Fed fed;
  for (int64_t step = 1; step <= 1200; ++step)
    fed.step(step, step < 250 ? 0.8 : 0, step < 250 ? 0.3 : 0.004);
  CHECK(fed.begun.empty());
}

TEST_CASE("the monitor agrees with the whole series after many steps, in little memory") {
  Fed fed;
  for (int64_t step = 1; step <= 6000; ++step) fed.step(step, 0.8, 0.15);
  REQUIRE(fed.monitor.holding().size() == 1);
  const Finding& f = fed.monitor.holding()[0];
  CHECK(f.period_steps == Approx(20).epsilon(0.02));
  CHECK(f.amplitude == Approx(0.8 / std::sqrt(2)).epsilon(0.02));
}

TEST_CASE("a loss that is not finite is told in its step") {
  Fed fed;
  for (int64_t step = 1; step <= 50; ++step) fed.step(step, 0, 0.003, step < 50 ? 2 : std::nan(""));
  REQUIRE(fed.begun.size() == 1);
  CHECK(fed.begun[0].first == 50);
  CHECK(fed.begun[0].second.kind == "diverging");
}

TEST_CASE("the monitor leaves alone a re-ordering that dies away within 160 steps") {
  // As after a jump of the router's rate: 30% of the batch moves at first, ever less of it later.
  Fed fed;
  for (int64_t step = 1; step <= 1000; ++step) {
    const double since = static_cast<double>(step - 400);
    const double left = since < 0 ? 0 : std::exp(-since / 50);
    fed.step(step, 0.8 * left, 0.004 + 0.3 * left);
  }
  CHECK(fed.begun.empty());
}

}  // namespace moetwin
