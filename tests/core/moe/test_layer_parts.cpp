// Router, dispatcher and experts, each swapped alone for a part that does something known.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "core/moe/experts.h"
#include "tests/core/moe/fake_parts.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

constexpr int64_t kHidden = 8;

/// k distinct experts for each of `tokens` tokens, different on every rank.
std::vector<double> some_ids(int64_t tokens, int64_t k, int64_t experts, int64_t rank) {
  std::vector<double> ids;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t j = 0; j < k; ++j)
      ids.push_back(static_cast<double>((t * t + 3 * rank + j) % experts));
  return ids;
}

int64_t tokens_of(int64_t rank) { return 5 + 2 * rank; }  // another number on each rank

struct Swap {
  int64_t dp, ep, experts, top_k, chunks;
};

enum Out { kX, kY, kDy, kDx, kDWeights, kSent, kReceived, kKept, kAtExperts };

std::vector<double> joined(const DispatchSaved& saved, HostSizes DispatchChunk::*which) {
  std::vector<double> all;
  for (const DispatchChunk& chunk : saved.chunks)
    all.insert(all.end(), (chunk.*which)->begin(), (chunk.*which)->end());
  return all;
}

void check_identity(const Swap& c) {
  CAPTURE(c.dp, c.ep, c.experts, c.top_k, c.chunks);
  const auto k = static_cast<size_t>(c.top_k);
  const auto ranks = on_ranks(layer_scenario(c.dp, c.ep, c.experts, c.top_k), [&](RankCase& at) {
    const int64_t tokens = tokens_of(at.rank);
    const auto seed = static_cast<uint64_t>(at.rank);
    const std::vector<double> weights(static_cast<size_t>(tokens) * k, 1 / static_cast<double>(k));
    auto router =
        std::make_unique<ToldRouter>(at, some_ids(tokens, c.top_k, c.experts, at.rank), weights);
    const ToldRouter& told = *router;
    MoeLayer layer(std::move(router), at.dispatcher(c.chunks),
                   std::make_unique<ScalingExperts>(
                       at, std::vector<double>(static_cast<size_t>(c.experts), 1)),
                   {}, 1);
    at.start();
    const Shape shape{tokens, kHidden};
    const auto x = draws(tokens * kHidden, 10 + seed), dy = draws(tokens * kHidden, 20 + seed);
    const MicroBatch batch = RankCase::batch(0, tokens, tokens);
    MoeLayer::Saved saved;
    const auto y = at.download(layer.forward(at.context, batch, at.upload(shape, x), saved));
    const auto sent = joined(saved.dispatch, &DispatchChunk::send_rows);
    const auto received = joined(saved.dispatch, &DispatchChunk::recv_rows);
    const DispatchCounts counts = saved.dispatch.counts;
    const auto dx = at.download(layer.backward(at.context, batch, at.upload(shape, dy), saved));
    return Lists{x,
                 y,
                 dy,
                 dx,
                 told.d_weights(),
                 sent,
                 received,
                 {counts.kept.begin(), counts.kept.end()},
                 {static_cast<double>(counts.received_rows)}};
  });
  double sent = 0, arrived = 0, assignments = 0;
  const auto ep = static_cast<size_t>(c.ep),
             columns = static_cast<size_t>(std::min(c.ep, c.experts));
  for (size_t r = 0; r < ranks.size(); ++r) {
    CAPTURE(r);
    const Lists& l = ranks[r];
    CHECK(l[kY] == l[kX]);    // weights are powers of two, so the sum of k parts is exact
    CHECK(l[kDx] == l[kDy]);  // and so is that of the gradients
    for (size_t a = 0; a < l[kDWeights].size(); ++a) {
      const auto at = static_cast<std::ptrdiff_t>(a / k * kHidden);
      const double dot = std::inner_product(l[kDy].begin() + at, l[kDy].begin() + at + kHidden,
                                            l[kX].begin() + at, 0.0);
      CHECK(l[kDWeights][a] == Approx(dot).margin(1e-12));
    }
    // What rank r sends to member q of its group is what q receives from r, chunk by chunk.
    const size_t group = r / ep * ep;
    for (size_t chunk = 0; chunk < static_cast<size_t>(c.chunks); ++chunk)
      for (size_t q = 0; q < ep; ++q) {
        CHECK(l[kSent][chunk * ep + q] == ranks[group + q][kReceived][chunk * ep + r % ep]);
        if (q < columns) sent += l[kSent][chunk * ep + q];
      }
    const auto own = static_cast<double>(tokens_of(static_cast<int64_t>(r)) * c.top_k);
    CHECK(std::accumulate(l[kKept].begin(), l[kKept].end(), 0.0) == own);
    assignments += own;
    if (r % ep < columns) arrived += l[kAtExperts][0];
  }
  // Each assignment of each rank reaches one expert column, and nothing else arrives.
  CHECK(sent == assignments);
  CHECK(arrived == assignments);
}

/// One rank, learned router, real or fake parts; x, y, dx, and gradients.
Lists run_layer(RankCase& at, std::unique_ptr<Dispatcher> dispatcher) {
  const int64_t tokens = 11;
  auto router = make_router(at.parameters, at.router_setup());
  auto experts = std::make_unique<GroupedExperts>(at.parameters, at.scenario.model_config, at.grid,
                                                  at.at, "experts", 0.3, 1);
  MoeLayer layer(std::move(router), std::move(dispatcher), std::move(experts), {}, 1);
  at.start();
  const Shape shape{tokens, kHidden};
  const MicroBatch batch = RankCase::batch(0, tokens, tokens);
  MoeLayer::Saved saved;
  const auto y = at.download(
      layer.forward(at.context, batch, at.upload(shape, draws(tokens * kHidden, 1)), saved));
  const auto dx = at.download(
      layer.backward(at.context, batch, at.upload(shape, draws(tokens * kHidden, 2)), saved));
  const Lists gradients = at.gradients();
  return {y, dx, gradients[0], gradients[1]};
}

}  // namespace

TEST_CASE("identity experts: what is dispatched comes back, tokens are conserved") {
  check_identity({1, 1, 4, 1, 1});
  check_identity({1, 1, 4, 2, 3});
  check_identity({1, 2, 4, 1, 1});
  check_identity({2, 2, 8, 2, 2});
  check_identity({1, 4, 4, 4, 1});
  check_identity({1, 4, 8, 2, 3});
  check_identity({1, 4, 2, 1, 2});  // hidden rows: two ranks hold each expert
  check_identity({3, 2, 6, 2, 1});
}

TEST_CASE("every assignment reaches its own expert") {
  const int64_t tokens = 9;
  const std::vector<double> factors{1, 10, 100, 1000, 1e4, 1e5};
  for (const int64_t chunks : {1, 2, 4}) {
    const auto ranks = on_ranks(layer_scenario(1, 3, 6, 2), [&](RankCase& at) {
      std::vector<double> weights;
      for (int64_t t = 0; t < tokens; ++t) weights.insert(weights.end(), {0.75, 0.25});
      MoeLayer layer(std::make_unique<ToldRouter>(at, some_ids(tokens, 2, 6, at.rank), weights),
                     at.dispatcher(chunks), std::make_unique<ScalingExperts>(at, factors), {}, 1);
      at.start();
      MoeLayer::Saved saved;
      const std::vector<double> ones(static_cast<size_t>(tokens * kHidden), 1);
      return Lists{at.download(layer.forward(at.context, RankCase::batch(0, tokens, tokens),
                                             at.upload({tokens, kHidden}, ones), saved))};
    });
    for (size_t r = 0; r < ranks.size(); ++r) {
      const auto ids = some_ids(tokens, 2, 6, static_cast<int64_t>(r));
      for (size_t i = 0; i < ranks[r][0].size(); ++i) {
        const size_t a = i / kHidden * 2;
        CHECK(ranks[r][0][i] == Approx(0.75 * factors[static_cast<size_t>(ids[a])] +
                                       0.25 * factors[static_cast<size_t>(ids[a + 1])]));
      }
    }
  }
}

TEST_CASE("a dispatcher that works token by token on the host gives the same layer") {
  const Scenario s = layer_scenario(1, 1, 6, 3);
  const Lists real = on_ranks(s, [](RankCase& at) { return run_layer(at, at.dispatcher(2)); })[0];
  const Lists fake = on_ranks(
      s, [](RankCase& at) { return run_layer(at, std::make_unique<HostDispatcher>(at)); })[0];
  REQUIRE(real[2] == fake[2]);
  for (const size_t list : {0, 1, 3}) {
    REQUIRE(real[list].size() == fake[list].size());
    for (size_t i = 0; i < real[list].size(); ++i)
      CHECK(real[list][i] == Approx(fake[list][i]).margin(1e-12));
  }
}

TEST_CASE("a learned router with scaling experts: y is x times the scores' sum of factors") {
  const int64_t tokens = 13, experts = 4;
  const std::vector<double> factors{2, 3, 5, 7};
  const auto ranks = on_ranks(layer_scenario(1, 2, experts, 2), [&](RankCase& at) {
    MoeLayer layer(make_router(at.parameters, at.router_setup()), at.dispatcher(),
                   std::make_unique<ScalingExperts>(at, factors), {}, 1);
    at.start();
    const auto x = draws(tokens * kHidden, 5 + static_cast<uint64_t>(at.rank));
    MoeLayer::Saved saved;
    const Tensor y = layer.forward(at.context, RankCase::batch(0, tokens, tokens),
                                   at.upload({tokens, kHidden}, x), saved);
    return Lists{x, at.download(y), at.download(at.parameter("layers.0.moe.router.weight").value)};
  });
  for (const Lists& l : ranks)
    for (size_t t = 0; t < static_cast<size_t>(tokens); ++t) {
      std::vector<std::pair<double, size_t>> scores;
      double sum = 0;
      for (size_t e = 0; e < static_cast<size_t>(experts); ++e) {
        double logit = 0;
        for (size_t h = 0; h < kHidden; ++h)
          logit += l[0][t * kHidden + h] * l[2][h * static_cast<size_t>(experts) + e];
        scores.emplace_back(std::exp(logit), e);
        sum += std::exp(logit);
      }
      std::sort(scores.rbegin(), scores.rend());
      const double factor = (scores[0].first * factors[scores[0].second] +
                             scores[1].first * factors[scores[1].second]) /
                            sum;
      for (size_t h = 0; h < kHidden; ++h)
        CHECK(l[1][t * kHidden + h] == Approx(factor * l[0][t * kHidden + h]).margin(1e-12));
    }
}

TEST_CASE("jitter is the router's own: the experts see the input as it is", "[P104]") {
  Scenario s = layer_scenario(1, 1, 1, 1);
  s.routing.jitter_epsilon = 0.1;
  const int64_t tokens = 64;
  const Lists l = on_ranks(s, [&](RankCase& at) {
    MoeLayer layer(make_router(at.parameters, at.router_setup()), at.dispatcher(),
                   std::make_unique<ScalingExperts>(at, std::vector<double>{1}), {}, 1);
    at.start();
    const auto x = draws(tokens * kHidden, 3);
    MoeLayer::Saved saved;
    const Tensor y = layer.forward(at.context, RankCase::batch(0, tokens, tokens),
                                   at.upload({tokens, kHidden}, x), saved);
    // The router's copy did move, by at most a tenth.
    return Lists{x, at.download(y), at.download(saved.routing.input)};
  })[0];
  CHECK(l[1] == l[0]);
  CHECK(l[2] != l[0]);
  for (size_t i = 0; i < l[0].size(); ++i)
    CHECK(std::abs(l[2][i] - l[0][i]) <= 0.1 * std::abs(l[0][i]) * (1 + 1e-7));
}

TEST_CASE("the same layer, twenty times: the same bits", "[P171][P173]") {
  const int64_t tokens = 32;
  const Lists runs = on_ranks(layer_scenario(1, 1, 4, 2), [&](RankCase& at) {
    MoeLayer layer(make_router(at.parameters, at.router_setup()), at.dispatcher(),
                   std::make_unique<GroupedExperts>(at.parameters, at.scenario.model_config,
                                                    at.grid, at.at, "experts", 0.3, 1),
                   {}, 1);
    at.start();
    const auto x = draws(tokens * kHidden, 3), dy = draws(tokens * kHidden, 4);
    const MicroBatch batch = RankCase::batch(0, tokens, tokens);
    Lists all;
    for (int i = 0; i < 20; ++i) {
      MoeLayer::Saved saved;
      const Tensor y = layer.forward(at.context, batch, at.upload({tokens, kHidden}, x), saved);
      const auto position = at.download(saved.dispatch.position);
      const Tensor dx = layer.backward(at.context, batch, at.upload({tokens, kHidden}, dy), saved);
      all.push_back(at.download(y));
      for (const auto& more : {at.download(dx), position})
        all.back().insert(all.back().end(), more.begin(), more.end());
    }
    return all;
  })[0];
  REQUIRE(runs.size() == 20);
  for (const auto& run : runs) CHECK(run == runs[0]);
}
