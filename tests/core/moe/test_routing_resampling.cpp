#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "core/moe/routing_resampling.h"
#include "core/moe/routing_trace.h"
#include "core/scenario/read.h"
#include "tests/support/temporary_directory.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Contains;

namespace {

using Counts = std::vector<int64_t>;

// `n` draws from `shares`, each by a uniform number of its own.
Counts multinomial(const std::vector<double>& shares, int64_t n, uint64_t stream) {
  Counts counts(shares.size());
  const PhiloxKey key = philox_key(42, Purpose::data, 0, static_cast<uint32_t>(stream));
  for (int64_t i = 0; i < n; ++i) {
    double at = philox_uniform(key, static_cast<uint64_t>(i));
    size_t e = 0;
    while (e + 1 < shares.size() && at >= shares[e]) at -= shares[e++];
    ++counts[e];
  }
  return counts;
}

RecordedStep step_of(const std::vector<Counts>& sources) {
  RecordedStep step;
  step.sources = sources;
  step.all.resize(sources[0].size());
  for (const Counts& source : sources)
    for (size_t e = 0; e < source.size(); ++e) step.all[e] += source[e];
  return step;
}

std::vector<const RecordedStep*> pointers(const std::vector<RecordedStep>& steps) {
  std::vector<const RecordedStep*> list;
  for (const RecordedStep& step : steps) list.push_back(&step);
  return list;
}

double variance(const std::vector<std::vector<double>>& rows, size_t column) {
  double mean = 0, sum = 0;
  for (const auto& row : rows) mean += row[column] / static_cast<double>(rows.size());
  for (const auto& row : rows) sum += (row[column] - mean) * (row[column] - mean);
  return sum / static_cast<double>(rows.size() - 1);
}

}  // namespace

TEST_CASE("dispersion is chi-squared over degrees of freedom") {
  // Both sources have 8, the total is 8 : 8, so 4 are expected everywhere: 4 x 2^2 / 4 = 4 over
  // (2-1)(2-1).
  const std::vector<RecordedStep> uneven{step_of({{6, 2}, {2, 6}})};
  CHECK(dispersion(pointers(uneven)) == Approx(4));
  const std::vector<RecordedStep> even{step_of({{4, 4}, {4, 4}})};
  CHECK(dispersion(pointers(even)) == 1);  // never less than a multinomial draw
  const std::vector<RecordedStep> alone{step_of({{6, 2}})};
  CHECK(dispersion(pointers(alone)) == 1);
  // Multinomial draws have 1: 200 steps x 3 x 3 degrees of freedom leave sqrt(2 / 1800) = 3% of
  // scatter.
  std::vector<RecordedStep> draws;
  for (uint64_t s = 0; s < 200; ++s) {
    std::vector<Counts> sources;
    for (uint64_t r = 0; r < 4; ++r)
      sources.push_back(multinomial({0.4, 0.3, 0.2, 0.1}, 64, 4 * s + r));
    draws.push_back(step_of(sources));
  }
  CHECK(dispersion(pointers(draws)) == Approx(1).margin(0.12));
}

TEST_CASE("chance of a small batch is taken out, and what the router does is kept") {
  std::vector<RecordedStep> steady, swinging;
  for (uint64_t s = 0; s < 100; ++s) {
    steady.push_back(step_of(
        {multinomial({0.5, 0.3, 0.2}, 128, 2 * s), multinomial({0.5, 0.3, 0.2}, 128, 2 * s + 1)}));
    const double hot = s % 6 < 3 ? 0.8 : 0.1;
    swinging.push_back(step_of({multinomial({hot, 0.9 - hot, 0.1}, 128, 1000 + 2 * s),
                                multinomial({hot, 0.9 - hot, 0.1}, 128, 1001 + 2 * s)}));
  }
  std::vector<std::vector<double>> seen;
  for (const RecordedStep& step : steady) {
    seen.push_back({});
    for (const int64_t n : step.all) seen.back().push_back(static_cast<double>(n) / 256);
  }
  const auto calm = wanted_shares(pointers(steady), dispersion(pointers(steady)));
  // The batch has a variance of p (1 - p) / 256; less than a third of it is left.
  CHECK(variance(seen, 0) == Approx(0.25 / 256).epsilon(0.5));
  CHECK(variance(calm, 0) < 0.33 * variance(seen, 0));
  const auto swing = wanted_shares(pointers(swinging), dispersion(pointers(swinging)));
  for (uint64_t s = 0; s < 100; ++s) {
    CHECK(swing[s][0] == Approx(s % 6 < 3 ? 0.8 : 0.1).margin(0.09));
    CHECK(std::accumulate(swing[s].begin(), swing[s].end(), 0.0) == Approx(1));
  }
}

TEST_CASE("a source's shares scatter as its own number of assignments has it") {
  const std::vector<double> wanted{0.5, 0.3, 0.2};
  for (const int64_t assignments : {100, 10'000}) {
    std::vector<std::vector<double>> rows;
    for (uint32_t step = 1; step <= 2000; ++step)
      rows.push_back(
          sampled_shares(wanted, 2, assignments, philox_key(7, Purpose::workload, 0, step), 0));
    // dispersion p (1 - p) / n; 2,000 draws know a variance to sqrt(2 / 2000) = 3%.
    CHECK(variance(rows, 1) ==
          Approx(2 * 0.3 * 0.7 / static_cast<double>(assignments)).epsilon(0.13));
  }
  CHECK(sampled_shares({1, 0}, 1, 10, philox_key(7, Purpose::workload, 0, 1), 0) ==
        std::vector<double>{1, 0});
}

TEST_CASE("layers are matched by depth") {
  const auto all = [](int64_t count, int64_t recorded) {
    Counts layers;
    for (int64_t i = 0; i < count; ++i) layers.push_back(layer_at_depth(i, count, recorded));
    return layers;
  };
  CHECK(all(4, 2) == Counts{0, 0, 1, 1});
  CHECK(all(3, 3) == Counts{0, 1, 2});
  CHECK(all(5, 1) == Counts{0, 0, 0, 0, 0});
  CHECK(all(2, 4) == Counts{0, 3});
  CHECK(all(1, 4) == Counts{3});
}

TEST_CASE("a proxy's record drives a model with other layers, ranks and tokens") {
  const TemporaryDirectory dir;
  // Layers 0 and 1 of a model with 2 experts: all to expert 0, all to expert 1; then the other way
  // round.
  dir.write("routing.csv",
            "step,layer,rank,expert,assigned,kept\n"
            "1,0,all,0,64,64\n1,0,all,1,0,0\n1,1,all,0,0,0\n1,1,all,1,64,64\n"
            "2,0,all,0,0,0\n2,0,all,1,64,64\n2,1,all,0,64,64\n2,1,all,1,0,0\n");
  const std::string text =
      R"({"model_config": {"num_layers": 4, "moe_layer_config": {"num_experts": 2, "top_k": 1}},
    "data": {"format": "synthetic"}, "routing": {"source": "proxy", "scenario": "FILE", "first_step": 2}})";
  const auto load = [&](const std::string& file) {
    std::string with = text;
    with.replace(with.find("FILE"), 4, file);
    return load_trace(parse_scenario(with, "big.json", {}, nullptr, dir.path()));
  };
  const auto trace = load("routing.csv");
  REQUIRE(trace);
  const auto shares = [&](int64_t step, int64_t layer) {
    return trace->shares(step, layer, 3, 8, 1'000'000, 1);
  };
  for (const int64_t layer : {0, 1}) {
    CHECK(shares(1, layer)[1] == Approx(1).margin(0.01));  // the trace's step 2
    CHECK(shares(2, layer)[0] == Approx(1).margin(0.01));
  }
  for (const int64_t layer : {2, 3}) CHECK(shares(1, layer)[0] == Approx(1).margin(0.01));
  dir.write("small.json", "{}");
  CHECK_THROWS_WITH(load("small.json"), Contains("is a scenario, not the record of its run"));
}
