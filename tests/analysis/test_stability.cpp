// Verdicts on probes, losses and recorded traces.
#include <catch2/catch.hpp>

#include "analysis/stability/oscillation.h"
#include "analysis/stability/stability.h"
#include "tests/analysis/series.h"

namespace moetwin {
namespace {

constexpr double kPi = 3.14159265358979323846;

/// A probe that is calm until `onset`, then swings by `a` of the mean with `churn`, until `end`.
LayerSeries swinging(int64_t steps, int64_t onset, int64_t end, double a, double churn,
                     double period = 20, int64_t every = 1) {
  LayerSeries layer;
  const PhiloxKey key = philox_key(7, Purpose::probe, 0, 0);
  for (int64_t step = 1; step <= steps; step += every) {
    const bool moves = step >= onset && step < end;
    const double c = moves ? a * std::cos(2 * kPi * static_cast<double>(step - onset) / period) : 0;
    std::vector<double> shares;
    for (int e = 0; e < 8; ++e) shares.push_back((1 + (e % 2 ? -c : c)) / 8);
    const double jitter = 0.5 + philox_uniform(key, static_cast<uint64_t>(step));
    test::add_probe(layer, step, (moves ? churn : 0.004) * jitter, shares);
  }
  return layer;
}

StabilityReport judged(const LayerSeries& layer, const LossSeries& loss = {}) {
  RoutingSeries series;
  series.layers.push_back(layer);
  return analyse_stability(series, loss, {});
}

LossSeries losses(int64_t steps, const std::function<double(int64_t)>& at) {
  LossSeries series;
  for (int64_t step = 1; step <= steps; ++step) {
    series.steps.push_back(step);
    series.loss.push_back(at(step));
    series.grad_norm.push_back(1);
  }
  return series;
}

double noise(int64_t step) {
  return philox_normal(philox_key(3, Purpose::data, 0, 0), static_cast<uint64_t>(step));
}

LayerSeries fixture(const std::string& name) {
  RoutingSeries series;
  read_probe_csv(std::string(FIXTURES) + "/probe-" + name + ".csv", series);
  REQUIRE(series.layers.size() == 1);
  return series.layers[0];
}

}  // namespace

TEST_CASE("a probe that begins to swing is oscillating from there on, with its period and sides") {
  const StabilityReport r = judged(swinging(2000, 1000, 9999, 0.8, 0.12));
  REQUIRE(r.findings.size() == 1);
  const Finding& f = r.findings[0];
  CHECK(f.kind == "oscillating");
  CHECK(f.strength == "strong");
  CHECK(f.period_steps == Approx(20).epsilon(0.02));
  CHECK(f.amplitude == Approx(0.8 / std::sqrt(2)).epsilon(0.02));
  CHECK(std::abs(f.onset_step - 1000) <= 16);
  CHECK(f.end_step == -1);
  CHECK(f.confidence > 0.9);
  CHECK(f.experts.size() == 4);
  CHECK(f.against.size() == 4);
  CHECK(f.experts[0] % 2 != f.against[0] % 2);
  CHECK(!f.knobs.empty());
}

TEST_CASE("steps are steps also when only every fourth is probed") {
  const StabilityReport r = judged(swinging(3200, 1600, 9999, 0.8, 0.12, 48, 4));
  REQUIRE(r.has("oscillating"));
  CHECK(r.findings[0].period_steps == Approx(48).epsilon(0.02));
  CHECK(std::abs(r.findings[0].onset_step - 1600) <= 64);
}

TEST_CASE("a movement that has settled is reported with its end only when it was long") {
  const StabilityReport longer = judged(swinging(4000, 1000, 2600, 0.8, 0.12));
  REQUIRE(longer.has("oscillating"));
  CHECK(std::abs(longer.findings[0].onset_step - 1000) <= 16);
  CHECK(std::abs(longer.findings[0].end_step - 2600) <= 80);
  const StabilityReport re_ordering = judged(swinging(4000, 1000, 1400, 0.8, 0.12));
  CHECK(re_ordering.has("stable"));
  REQUIRE(re_ordering.notes.size() == 1);
  CHECK_THAT(re_ordering.notes[0], Catch::Contains("re-ordered until step 14"));
}

TEST_CASE("finding its way at first is no oscillation") {
  CHECK(judged(swinging(2000, 1, 290, 0.8, 0.3)).has("stable"));
}

TEST_CASE("moving loads under a calm probe are moving data") {
  LayerSeries layer = swinging(1000, 9999, 9999, 0, 0);
  for (int64_t step = 1; step <= 1000; ++step) {
    const double c = 0.5 * std::cos(2 * kPi * static_cast<double>(step) / 100);
    std::vector<int64_t> counts;
    for (int e = 0; e < 8; ++e) counts.push_back(std::lround(1000 * (1 + (e % 2 ? -c : c))));
    test::add_step(layer, step, counts);
  }
  CHECK(judged(layer).has("stable"));
  layer.probe = {};
  const StabilityReport without = judged(layer);
  REQUIRE(without.has("oscillating"));
  CHECK(without.findings[0].confidence < 0.7);
  CHECK_THAT(without.findings[0].evidence, Catch::Contains("moving data looks the same"));
}

TEST_CASE("traces of a router that oscillates, one that is stale, and the cured one") {
  // Runs of a prototype with its gate rate raised at step 400; their periods were measured apart
  // from this detector: 6 without delay, 27 to 30 two steps stale.
  const StabilityReport sick = judged(fixture("sick"));
  REQUIRE(sick.has("oscillating"));
  CHECK(sick.findings[0].strength == "strong");
  CHECK(sick.findings[0].period_steps == Approx(6).margin(1.2));
  CHECK(std::abs(sick.findings[0].onset_step - 401) <= 40);
  const StabilityReport stale = judged(fixture("stale"));
  REQUIRE(stale.has("oscillating"));
  CHECK(stale.findings[0].period_steps == Approx(28.5).margin(3));
  CHECK(std::abs(stale.findings[0].onset_step - 401) <= 40);
  CHECK(judged(fixture("cured")).has("stable"));
}

TEST_CASE("too few steps give no verdict and say so") {
  LayerSeries layer;
  for (int64_t step = 1; step <= 20; ++step) test::add_step(layer, step, {50, 50, 50, 50});
  const StabilityReport r = judged(layer);
  CHECK(r.findings.empty());
  REQUIRE(r.notes.size() == 1);
  CHECK_THAT(r.notes[0], Catch::Contains("20 steps are too few"));
  // One line, of however many layers it is true.
  RoutingSeries several;
  for (const int64_t number : {1, 3, 4, 5}) {
    several.layers.push_back(layer);
    several.layers.back().layer = number;
  }
  CHECK_THAT(analyse_stability(several, {}, {}).notes.at(0),
             Catch::StartsWith("layers 1, 3, 4, 5: 20 steps"));
  several.layers.erase(several.layers.begin());
  const auto notes = analyse_stability(several, {}, {}).notes;
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], Catch::StartsWith("layers 3 to 5: 20 steps"));
}

TEST_CASE("a falling loss is stable, a rising or broken one diverges") {
  const auto falling = [](int64_t s) {
    return 1 + 4 * std::exp(-static_cast<double>(s) / 50) + 0.02 * noise(s);
  };
  CHECK(judged({}, losses(400, falling)).has("stable"));
  const StabilityReport rising =
      judged({}, losses(400, [&](int64_t s) {
               return falling(s) + (s > 250 ? 0.03 * static_cast<double>(s - 250) : 0);
             }));
  REQUIRE(rising.has("diverging"));
  CHECK(rising.findings[0].onset_step > 240);
  CHECK(rising.findings[0].onset_step < 340);
  const StabilityReport broken =
      judged({}, losses(400, [&](int64_t s) { return s >= 300 ? std::nan("") : falling(s); }));
  REQUIRE(broken.has("diverging"));
  CHECK(broken.findings[0].onset_step == 300);
  CHECK(broken.findings[0].confidence == 1);
  // A jump that decays again is what oscillation does: no divergence.
  CHECK(!judged({}, losses(2000,
                           [&](int64_t s) {
                             return 0.3 +
                                    (s > 1000 ? 1.5 * std::exp(-static_cast<double>(s - 1000) / 400)
                                              : 0) +
                                    0.02 * noise(s);
                           }))
             .has("diverging"));
}

TEST_CASE("a flat noisy loss neither diverges nor spikes; a planted spike is found") {
  int diverging = 0;
  size_t spikes = 0;
  for (int64_t seed = 0; seed < 50; ++seed) {
    const LossMetrics m =
        loss_metrics(losses(500, [&](int64_t s) { return 2 + 0.1 * noise(s + 1000 * seed); }));
    diverging += m.diverging;
    spikes += m.spikes.size();
  }
  CHECK(diverging == 0);
  CHECK(spikes == 0);
  const LossMetrics m =
      loss_metrics(losses(500, [](int64_t s) { return 2 + 0.1 * noise(s) + (s == 321 ? 3 : 0); }));
  CHECK(m.spikes == std::vector<int64_t>{321});
}

TEST_CASE("saturated routers, harmful experts and grown logits are noted; bias flips counted") {
  LayerSeries layer = swinging(400, 9999, 9999, 0, 0);
  ProbeSeries& probe = layer.probe;
  for (size_t i = 0; i < probe.size(); ++i) {
    probe.router_entropy[i] = 0.01;
    probe.harm[i] = 0.75;
    probe.logit_std[i] = i < 100 ? 0.5 : 50;
    for (int e = 0; e < 8; ++e) probe.bias.push_back(e ? 0 : i % 2 ? 0.1 : -0.1);
  }
  const StabilityReport r = judged(layer);
  CHECK(r.layers[0].bias_flips == 1);
  REQUIRE(r.notes.size() == 3);
  CHECK_THAT(r.notes[0], Catch::Contains("saturated"));
  CHECK_THAT(r.notes[1], Catch::Contains("75% of routed tokens"));
  CHECK_THAT(r.notes[2], Catch::Contains("from 0.5 to 50"));
}

}  // namespace moetwin
