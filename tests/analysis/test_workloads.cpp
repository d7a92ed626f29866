// The scripted workloads, whose verdicts are known from how they are made.
#include <catch2/catch.hpp>

#include "analysis/stability/stability.h"
#include "core/moe/workload.h"
#include "tests/analysis/series.h"

namespace moetwin {
namespace {

struct Sizes {
  int64_t experts = 8, sources = 4, tokens = 512, top_k = 1, steps = 400, columns = 4;
};

LayerSeries scripted(const std::string& source, const WorkloadConfig& workload, const Sizes& s,
                     uint64_t seed = 1) {
  RoutingConfig routing;
  routing.source = source;
  routing.workload = workload;
  LayerSeries layer;
  for (int64_t step = 1; step <= s.steps; ++step) {
    std::vector<int64_t> sum(static_cast<size_t>(s.experts));
    layer.sources = {step, {}, {}};
    for (int64_t rank = 0; rank < s.sources; ++rank) {
      const std::vector<int64_t> counts = scripted_counts(routing, seed, step, 0, rank, s.sources,
                                                          s.tokens, s.top_k, s.experts, s.columns);
      layer.sources.ranks.push_back(rank);
      for (size_t e = 0; e < counts.size(); ++e) {
        sum[e] += counts[e];
        layer.sources.assigned.push_back(static_cast<double>(counts[e]));
      }
    }
    test::add_step(layer, step, sum);
  }
  return layer;
}

std::vector<std::string> kinds(const LayerSeries& layer, StabilityReport* report = nullptr) {
  RoutingSeries series;
  series.layers.push_back(layer);
  StabilityOptions options;
  options.expert_columns = 4;
  const StabilityReport r = analyse_stability(series, {}, options);
  if (report) *report = r;
  std::vector<std::string> found;
  for (const Finding& f : r.findings) found.push_back(f.kind);
  return found;
}

using Kinds = std::vector<std::string>;

}  // namespace

TEST_CASE("balanced workloads are stable") {
  const std::string source = GENERATE("uniform", "W0");
  const int64_t top_k = GENERATE(1, 2);
  Sizes sizes;
  sizes.top_k = top_k;
  sizes.tokens = GENERATE(512, 509);
  CHECK(kinds(scripted(source, {}, sizes)) == Kinds{"stable"});
}

TEST_CASE("workloads with a standing hot set are imbalanced and nothing else") {
  const std::string source = GENERATE("W1", "W2", "W3", "W8", "W11");
  WorkloadConfig workload;
  StabilityReport report;
  INFO(source);
  CHECK(kinds(scripted(source, workload, {}), &report) == Kinds{"imbalanced"});
  if (source == "W1") {
    // Half of the assignments on one of 8 experts is 4 times the mean.
    CHECK(report.layers[0].per_step.imbalance_experts == Approx(4).epsilon(0.01));
    CHECK(report.findings[0].experts.size() == 1);
  }
}

TEST_CASE("uneven sources are named") {
  StabilityReport report;
  CHECK(kinds(scripted("W4", {}, {}), &report) == Kinds{"imbalanced"});
  CHECK(report.layers[0].source_ratio == Approx(4).epsilon(0.01));
  CHECK_THAT(report.findings[0].evidence, Catch::Contains("4.0 to 1"));
}

TEST_CASE("experts that get nothing are named") {
  StabilityReport report;
  CHECK(kinds(scripted("W5", {}, {}), &report) == Kinds{"imbalanced"});
  CHECK(report.findings[0].experts == std::vector<int64_t>{7});
  WorkloadConfig three;
  three.zero_experts = 3;
  CHECK(kinds(scripted("W5", three, {})) == Kinds{"collapsed"});
}

TEST_CASE("a rotating hot set is rotating, not oscillating") {
  WorkloadConfig workload;
  workload.period_steps = GENERATE(5, 20, 50);
  workload.hot_experts = GENERATE(1, 2);
  Sizes sizes;
  sizes.steps = GENERATE(400, 1000);
  StabilityReport report;
  CHECK(kinds(scripted("W6", workload, sizes), &report) == Kinds{"rotating"});
  const double turn =
      static_cast<double>(workload.period_steps) * 8 / static_cast<double>(workload.hot_experts);
  CHECK(report.findings[0].period_steps == Approx(turn));
}

TEST_CASE("bursts are imbalanced, not oscillating") {
  StabilityReport report;
  CHECK(kinds(scripted("W7", {}, {}), &report) == Kinds{"imbalanced"});
  CHECK_THAT(report.findings[0].evidence, Catch::Contains("bursts") && Catch::Contains("every 20"));
}

TEST_CASE("an oscillating workload is found with its period down to a fifth of the mean") {
  WorkloadConfig workload;
  workload.amplitude = GENERATE(0.2, 0.5, 1.0);
  workload.period_steps = GENERATE(4, 7, 20, 60);
  Sizes sizes;
  sizes.experts = GENERATE(2, 8, 9);
  sizes.top_k = sizes.experts == 2 ? 1 : GENERATE(1, 2);
  sizes.columns = 1;
  StabilityReport report;
  CAPTURE(workload.amplitude, workload.period_steps, sizes.experts, sizes.top_k);
  REQUIRE(kinds(scripted("W9", workload, sizes), &report) == Kinds{"oscillating"});
  const Finding& f = report.findings[0];
  CHECK(f.period_steps == Approx(static_cast<double>(workload.period_steps)).epsilon(0.1));
  // Standing waves of +-a have the deviation a / sqrt(2); the last of 9 experts stands still.
  const double moving = sizes.experts == 9 ? std::sqrt(8.0 / 9) : 1;
  CHECK(f.amplitude ==
        Approx(workload.amplitude / std::sqrt(2) * moving).epsilon(0.15).margin(0.02));
  CHECK(f.onset_step < 100);
  CHECK(f.end_step == -1);
}

TEST_CASE("noise of sampling alone is never movement nor imbalance") {
  int alarms = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const size_t experts = seed % 3 == 0 ? 4 : seed % 3 == 1 ? 8 : 16;
    const int64_t draws = seed % 2 ? 64 : 512, steps = seed % 5 == 0 ? 800 : 200;
    std::vector<double> shares(experts, 1.0 / static_cast<double>(experts));
    LayerSeries layer;
    for (int64_t step = 1; step <= steps; ++step)
      test::add_step(layer, step, test::multinomial(shares, draws, seed, step));
    alarms += kinds(layer) != Kinds{"stable"};
  }
  CHECK(alarms == 0);
}

TEST_CASE("all tokens on one expert is a collapse that names it", "[P177]") {
  LayerSeries layer;
  layer.layer = 5;
  for (int64_t step = 1; step <= 100; ++step)
    test::add_step(layer, step, {0, 0, 4096, 0, 0, 0, 0, 0});
  StabilityReport report;
  CHECK(kinds(layer, &report) == Kinds{"collapsed"});
  CHECK(report.findings[0].layer == 5);
  CHECK(report.findings[0].experts == std::vector<int64_t>{2});
  CHECK(report.layers[0].mean_load.entropy == 0);
  CHECK(report.layers[0].mean_load.imbalance_experts == 8);  // the maximal share is 1.0
}

}  // namespace moetwin
