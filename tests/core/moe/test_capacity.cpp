// How many places an expert has, and what becomes of tokens beyond.

#include <catch2/catch.hpp>

#include "core/moe/experts.h"
#include "core/moe/layer.h"
#include "tests/core/moe/fake_parts.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

int64_t capacity(double factor, int64_t tokens, int64_t experts, int64_t top_k, int64_t least = 0) {
  MoeLayerConfig config;
  config.capacity_factor = factor;
  config.num_experts = experts;
  config.top_k = top_k;
  config.min_capacity = least;
  return expert_capacity(config, tokens);
}

constexpr int64_t kHidden = 8;

/// Rows of y that are zero: tokens that nobody kept. Every token chooses expert 0 with the given
/// weight; identity experts.
std::vector<bool> dropped(Scenario s, const std::vector<double>& weights) {
  const auto tokens = static_cast<int64_t>(weights.size());
  const Lists l = on_ranks(s, [&](RankCase& at) {
    MoeLayer layer(
        std::make_unique<ToldRouter>(at, std::vector<double>(weights.size(), 0), weights),
        at.dispatcher(), std::make_unique<ScalingExperts>(at, std::vector<double>(4, 1)), {}, 1);
    at.start();
    MoeLayer::Saved saved;
    const std::vector<double> ones(static_cast<size_t>(tokens * kHidden), 1);
    const MicroBatch batch = RankCase::batch(0, tokens, tokens);
    const auto y =
        at.download(layer.forward(at.context, batch, at.upload({tokens, kHidden}, ones), saved));
    const DispatchCounts counts = saved.dispatch.counts;
    const auto dx =
        at.download(layer.backward(at.context, batch, at.upload({tokens, kHidden}, ones), saved));
    return Lists{
        y, dx, {static_cast<double>(counts.kept[0]), static_cast<double>(counts.routed[0])}};
  })[0];
  std::vector<bool> none;
  for (size_t t = 0; t < weights.size(); ++t) {
    none.push_back(l[0][t * kHidden] == 0);
    for (size_t h = 0; h < kHidden; ++h) {
      CHECK(l[0][t * kHidden + h] == (none[t] ? 0 : weights[t]));  // weights are not renormalised
      CHECK(l[1][t * kHidden + h] == (none[t] ? 0 : weights[t]));
    }
  }
  CHECK(l[2][0] == static_cast<double>(std::count(none.begin(), none.end(), false)));
  CHECK(l[2][1] == static_cast<double>(weights.size()));  // counted before dropping
  return none;
}

Scenario with_capacity(double factor, int64_t least, const std::string& policy) {
  Scenario s = layer_scenario(1, 1, 4, 1);
  MoeLayerConfig& moe = s.model_config.moe_layer_config;
  moe.capacity_factor = factor;
  moe.min_capacity = least;
  moe.drop_policy = policy;
  return s;
}

}  // namespace

TEST_CASE("capacity in integers: the factor is a decimal, not a double", "[P058][P059][P062]") {
  CHECK(capacity(1.0, 5, 4, 1, 4) == 4);  // max(ceil(5/4), 4)
  CHECK(capacity(1.0, 5, 4, 1, 1) == 2);
  CHECK(capacity(8.0, 3, 4, 1) == 6);
  CHECK(capacity(1.2, 128, 10, 1) == 16);    // ceil(15.36), not 154
  CHECK(capacity(1.1, 1000, 10, 1) == 110);  // in doubles ceil(110.00000000000001) = 111
  CHECK(capacity(1.1, 500, 10, 2) == 110);
  CHECK(capacity(0.25, 4, 8, 2) == 1);
  CHECK(capacity(1.0, 0, 8, 2) == 0);
  CHECK(capacity(1e-9, 4, 8, 2) == 1);  // a factor above 0 leaves a place
  MoeLayerConfig dropless;
  dropless.num_experts = 4;
  CHECK(expert_capacity(dropless, 1000) == -1);
}

TEST_CASE("capacity of many tokens does not wrap", "[P067]") {
  // 2^32 tokens of 8 choices, times a million for the decimals of the factor.
  CHECK(capacity(1.5, int64_t{1} << 32, 64, 8) == (int64_t{1} << 29) * 3 / 2);
}

TEST_CASE("five tokens on one expert: four places keep four, two keep two", "[P058]") {
  const std::vector<double> weights(5, 1);
  CHECK(dropped(with_capacity(1, 4, "position"), weights) ==
        std::vector<bool>{false, false, false, false, true});
  CHECK(dropped(with_capacity(1, 1, "position"), weights) ==
        std::vector<bool>{false, false, true, true, true});
}

TEST_CASE("more places than tokens: nothing is dropped", "[P059]") {
  CHECK(dropped(with_capacity(8, 0, "position"), {1, 1, 1}) == std::vector<bool>(3, false));
  CHECK(dropped(with_capacity(8, 0, "probability"), {1, 0.5, 0.25}) == std::vector<bool>(3, false));
}

TEST_CASE("who stays: the first tokens, or those with the highest weight", "[P064]") {
  const std::vector<double> weights{0.4, 0.9, 0.6, 0.8};
  CHECK(dropped(with_capacity(2, 0, "position"), weights) ==
        std::vector<bool>{false, false, true, true});
  CHECK(dropped(with_capacity(2, 0, "probability"), weights) ==
        std::vector<bool>{true, false, true, false});
}
