// Ranks, experts and chunks without tokens, ragged numbers of tokens: all take part in every
// exchange, and all of them together compute what one rank computes.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "core/moe/experts.h"
#include "core/moe/layer.h"
#include "tests/support/rank_case.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

constexpr int64_t kHidden = 8;

struct Run {
  Scenario scenario;
  std::vector<int64_t> tokens;  ///< of each rank
  int64_t chunks = 1;
  bool expert_0_only = false;
};

struct Result {
  std::vector<double> y, dx;                                      ///< [T,H] over all ranks
  std::map<double, double> gradients;                             ///< summed over ranks
  std::vector<double> forward_calls, backward_calls, at_experts;  ///< by rank
  std::vector<std::vector<double>> w1;                            ///< own gradient of each rank
};

/// A learned router and real experts; tokens of all ranks are one global batch.
Result run(const Run& c) {
  const int64_t all = std::accumulate(c.tokens.begin(), c.tokens.end(), int64_t{0});
  std::vector<double> x = draws(all * kHidden, 1);
  const std::vector<double> dy = draws(all * kHidden, 2);
  if (c.expert_0_only)  // a constant feature that only the weights of expert 0 use
    for (size_t i = 0; i < x.size(); i += kHidden) x[i] = 10;
  const auto ranks = on_ranks(c.scenario, [&](RankCase& at) {
    auto router = make_router(at.parameters, at.router_setup());
    auto experts = std::make_unique<GroupedExperts>(at.parameters, at.scenario.model_config,
                                                    at.grid, at.at, "experts", 0.3, 1);
    MoeLayer layer(std::move(router), at.dispatcher(c.chunks), std::move(experts), {}, 1);
    at.start();
    if (c.expert_0_only) {
      const Tensor weight = at.parameter("layers.0.moe.router.weight").value;
      std::vector<double> w(static_cast<size_t>(weight.elements()), 0.0);
      w[0] = 100;
      at.write(weight, w);
    }
    const auto mine = static_cast<std::ptrdiff_t>(at.rank);
    const int64_t tokens = c.tokens[static_cast<size_t>(at.rank)];
    const int64_t first = std::accumulate(c.tokens.begin(), c.tokens.begin() + mine, int64_t{0});
    const auto part = [&](const std::vector<double>& values) {
      const auto begin = values.begin() + first * kHidden;
      return at.upload({tokens, kHidden}, {begin, begin + tokens * kHidden});
    };
    const auto calls = [&] {
      return at.communicators.ep ? static_cast<double>(at.communicators.ep->calls()) : 0.0;
    };
    const MicroBatch batch = RankCase::batch(first, tokens, all);
    MoeLayer::Saved saved;
    const double before = calls();
    const auto y = at.download(layer.forward(at.context, batch, part(x), saved));
    const double between = calls();
    const auto received = static_cast<double>(saved.dispatch.counts.received_rows);
    const auto dx = at.download(layer.backward(at.context, batch, part(dy), saved));
    const double after = calls();
    const Lists gradients = at.gradients();
    return Lists{y,
                 dx,
                 gradients[0],
                 gradients[1],
                 {between - before, after - between, received},
                 at.download(at.parameter("experts.w1").gradient)};
  });
  Result result;
  for (const Lists& l : ranks) {
    result.y.insert(result.y.end(), l[0].begin(), l[0].end());
    result.dx.insert(result.dx.end(), l[1].begin(), l[1].end());
    result.forward_calls.push_back(l[4][0]);
    result.backward_calls.push_back(l[4][1]);
    result.at_experts.push_back(l[4][2]);
    result.w1.push_back(l[5]);
  }
  result.gradients = summed(ranks, 2);
  return result;
}

Run one_rank(const Run& c) {
  Run one{layer_scenario(1, 1, c.scenario.model_config.moe_layer_config.num_experts,
                         c.scenario.model_config.moe_layer_config.top_k),
          {std::accumulate(c.tokens.begin(), c.tokens.end(), int64_t{0})}};
  one.expert_0_only = c.expert_0_only;
  return one;
}

bool close(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](double u, double v) {
           return std::abs(u - v) <= 1e-12 * std::max(1.0, std::abs(v));
         });
}

void check_equal(const Result& got, const Result& expected) {
  CHECK(close(got.y, expected.y));
  CHECK(close(got.dx, expected.dx));
  REQUIRE(got.gradients.size() == expected.gradients.size());
  double worst = 0;
  for (const auto& [key, value] : expected.gradients)
    worst = std::max(worst, std::abs(got.gradients.at(key) - value));
  CHECK(worst <= 1e-12);
  CHECK(std::isfinite(worst));
}

bool same_everywhere(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [&](double v) { return v == values[0]; });
}

/// All ranks issue the same number of collectives and get what one rank gets.
Result check(const Run& c) {
  const Result got = run(c);
  check_equal(got, run(one_rank(c)));
  CHECK(same_everywhere(got.forward_calls));
  CHECK(same_everywhere(got.backward_calls));
  return got;
}

}  // namespace

TEST_CASE("all tokens on one expert: seven of eight ranks receive nothing", "[P022]") {
  Run c{layer_scenario(1, 8, 8, 1), std::vector<int64_t>(8, 16)};
  c.expert_0_only = true;
  const Result got = check(c);
  CHECK(got.y.size() == 8 * 16 * kHidden);
  CHECK(got.at_experts == std::vector<double>{128, 0, 0, 0, 0, 0, 0, 0});
  for (size_t r = 0; r < 8; ++r)
    CHECK(std::any_of(got.w1[r].begin(), got.w1[r].end(), [](double g) { return g != 0; }) ==
          (r == 0));
}

TEST_CASE("a rank without received tokens joins every exchange, backward too", "[P023]") {
  Run c{layer_scenario(1, 2, 2, 1), {7, 7}};
  c.expert_0_only = true;
  const Result got = check(c);
  CHECK(got.at_experts == std::vector<double>{14, 0});
  // Counts, tokens there and tokens back; then their gradients.
  CHECK(got.forward_calls == std::vector<double>{3, 3});
  CHECK(got.backward_calls == std::vector<double>{2, 2});
}

TEST_CASE("ranks with other numbers of tokens, and with none", "[P164][P169]") {
  check({layer_scenario(1, 2, 4, 2), {16, 5}});
  check({layer_scenario(1, 4, 4, 2), {8, 3, 0, 5}});
  check({layer_scenario(2, 2, 4, 1), {0, 3, 8, 0}});
  check({layer_scenario(1, 4, 2, 2), {0, 6, 1, 0}});  // hidden rows
}

TEST_CASE("no tokens anywhere: every exchange is empty and over at once", "[P164]") {
  const Result got = run({layer_scenario(1, 4, 4, 2), {0, 0, 0, 0}});
  CHECK(got.y.empty());
  CHECK(got.dx.empty());
  CHECK(same_everywhere(got.forward_calls));
  CHECK(got.forward_calls[0] == 3);
  for (const auto& [key, value] : got.gradients) CHECK(value == 0);
}

TEST_CASE("tokens that do not divide by the chunks, and fewer tokens than chunks") {
  for (const int64_t chunks : {2, 3, 4}) {
    CAPTURE(chunks);
    check({layer_scenario(1, 1, 4, 2), {7}, chunks});
    check({layer_scenario(1, 2, 4, 2), {7, 2}, chunks});
    check({layer_scenario(1, 4, 4, 2), {1, 3, 0, 5}, chunks});
  }
}

TEST_CASE("the gradient of the layer's input does not depend on where experts are", "[P127]") {
  for (const int64_t ep : {2, 4})
    check({layer_scenario(1, ep, 4, 2), std::vector<int64_t>(static_cast<size_t>(ep), 6)});
}

TEST_CASE("a larger batch than the one before needs no agreed maximum", "[P170]") {
  // Buffers follow the counts: 8 tokens, then 9 through the same layer.
  const auto ranks = on_ranks(layer_scenario(1, 2, 4, 2), [&](RankCase& at) {
    auto router = make_router(at.parameters, at.router_setup());
    auto experts = std::make_unique<GroupedExperts>(at.parameters, at.scenario.model_config,
                                                    at.grid, at.at, "experts", 0.3, 1);
    MoeLayer layer(std::move(router), at.dispatcher(), std::move(experts), {}, 1);
    at.start();
    Lists all;
    for (const int64_t tokens : {8, 9}) {
      MoeLayer::Saved saved;
      all.push_back(at.download(
          layer.forward(at.context, RankCase::batch(0, tokens, tokens),
                        at.upload({tokens, kHidden}, draws(tokens * kHidden, 1)), saved)));
    }
    return all;
  });
  for (const Lists& l : ranks) {
    REQUIRE(l[1].size() == 9 * kHidden);
    CHECK(std::equal(l[0].begin(), l[0].end(), l[1].begin()));  // the first eight are the same
  }
}
