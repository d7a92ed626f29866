// Balance of load as the layers report it and as it acts on a router: losses, records, counts of
// the step, the selection bias.

#include <catch2/catch.hpp>
#include <cmath>

#include "core/base/error.h"
#include "core/moe/balance.h"
#include "core/moe/router.h"
#include "core/scenario/stages.h"
#include "tests/support/rank_case.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {

constexpr int64_t kHidden = 8;

Scenario layers(int64_t num_layers, int64_t every, int64_t experts, int64_t top_k) {
  Scenario s = layer_scenario(1, 1, experts, top_k);
  s.model_config.num_layers = num_layers;
  s.model_config.moe_layer_config.moe_every_k_layers = every;
  s.model_config.moe_layer_config.aux_loss_factor = 0.01;
  return s;
}

/// Runs the routers of all MoE layers on tokens whose first feature is 1 and the others 0, so that
/// logits are the first row of each router's weights: given here by layer.
Lists losses_of(const Scenario& s, int64_t tokens, const Lists& logits) {
  return on_ranks(s, [&](RankCase& at) {
    std::vector<std::unique_ptr<Router>> routers;
    for (size_t l = 0; l < logits.size(); ++l)
      routers.push_back(make_router(at.parameters, at.router_setup(static_cast<int64_t>(l))));
    at.start();
    std::vector<double> x(static_cast<size_t>(tokens * kHidden), 0.0);
    for (size_t i = 0; i < x.size(); i += kHidden) x[i] = 1;
    const Tensor in = at.upload({tokens, kHidden}, x);
    const auto experts = static_cast<size_t>(s.model_config.moe_layer_config.num_experts);
    Lists all;
    for (size_t l = 0; l < routers.size(); ++l) {
      std::vector<double> w(kHidden * experts, 0.0);
      std::copy(logits[l].begin(), logits[l].end(), w.begin());
      const int64_t number = moe_layers(s.model_config, {{0, s.model_config.num_layers}})[l];
      at.write(at.parameter("layers." + std::to_string(number) + ".moe.router.weight").value, w);
      const Tensor counts = at.memory.allocate({static_cast<int64_t>(experts) + 1}, DType::i64,
                                               MemoryClass::control, "counts");
      routers[l]->forward(at.context, RankCase::batch(0, tokens, tokens), in, counts);
      all.push_back(at.download(at.balance.losses(static_cast<int64_t>(l))));
    }
    at.balance.check_records(1);
    return all;
  })[0];
}

std::vector<double> logs(std::initializer_list<double> probabilities) {
  std::vector<double> values;
  for (const double p : probabilities) values.push_back(std::log(p));
  return values;
}

}  // namespace

TEST_CASE("each layer balances by itself: opposite collapses do not cancel", "[P074][P073]") {
  // Layer 0 sends all to expert 0, layer 1 all to expert 1, with scores near 1: 2.0 and 2.0, where
  // joined layers would show 1.0.
  const Lists l = losses_of(layers(2, 1, 2, 1), 4, {{40, 0}, {0, 40}});
  CHECK(l[0][0] == Approx(2.0).epsilon(1e-12));
  CHECK(l[1][0] == Approx(2.0).epsilon(1e-12));
  // Sums of scores per expert stand behind the four losses.
  CHECK(l[0][4] == Approx(4.0));
  CHECK(l[1][5] == Approx(4.0));
}

TEST_CASE("load is counted before dropping", "[P077][P073]") {
  // Eight tokens choose expert 0, which has two places: 4 x (1 x 0.7) = 2.8, not a quarter of it.
  Scenario s = layers(1, 1, 4, 1);
  s.model_config.moe_layer_config.capacity_factor = 1.0;
  CHECK(losses_of(s, 8, {logs({0.7, 0.1, 0.1, 0.1})})[0][0] == Approx(2.8).epsilon(1e-9));
}

TEST_CASE("dense layers between MoE layers leave no entry and are not in the mean", "[P080]") {
  const Scenario s = layers(4, 2, 4, 1);
  CHECK(moe_layers(s.model_config, {{0, s.model_config.num_layers}}) == std::vector<int64_t>{1, 3});
  const Lists l = losses_of(s, 8, {logs({0.7, 0.1, 0.1, 0.1}), logs({0.4, 0.2, 0.2, 0.2})});
  REQUIRE(l.size() == 2);
  CHECK(l[0][0] == Approx(2.8).epsilon(1e-9));
  CHECK(l[1][0] == Approx(1.6).epsilon(1e-9));
  const Lists factors = on_ranks(s, [](RankCase& at) {
    const BalanceState::Factors whole = at.balance.factors(RankCase::batch(0, 8, 8));
    const BalanceState::Factors quarter = at.balance.factors(RankCase::batch(0, 8, 32));
    return Lists{{whole.aux, quarter.aux}};
  })[0];
  CHECK(factors[0][0] == Approx(0.01 / 2));      // two MoE layers, not four
  CHECK(factors[0][1] == Approx(0.01 / 2 / 4));  // a quarter of the batch's tokens
}

TEST_CASE("a missing or a second record of a layer is named") {
  const Scenario s = layers(4, 2, 4, 1);
  const auto message = [&](int64_t records, int64_t expected) -> std::string {
    try {
      on_ranks(s, [&](RankCase& at) {
        at.start();
        const Tensor counts = at.upload({5}, DType::i64, {1, 1, 1, 1, 0});
        const MicroBatch batch = RankCase::batch(0, 4, 4);
        at.balance.record(at.context, 0, batch, counts);
        for (int64_t i = 0; i < records; ++i) at.balance.record(at.context, 1, batch, counts);
        MicroBatch evaluation = batch;
        evaluation.training = false;  // leaves none
        at.balance.record(at.context, 1, evaluation, counts);
        at.balance.check_records(expected);
        return Lists{};
      });
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::internal);
      return error.what();
    }
    return "";
  };
  CHECK(message(1, 1) == "");
  CHECK_THAT(message(0, 1), Contains("layer 3") && Contains("0 were left, 1 micro-batches"));
  CHECK_THAT(message(2, 1), Contains("layer 3") && Contains("2 were left"));
}

TEST_CASE("the balance bias moves once per step, whatever the number of micro-batches", "[P087]") {
  Scenario s = layers(1, 1, 2, 1);
  s.model_config.moe_layer_config.bias_update_rate = 0.001;
  const Lists l = on_ranks(s, [](RankCase& at) {
    at.start();
    Lists all;
    for (int step = 1; step <= 2; ++step) {
      at.balance.begin_step();
      const Tensor counts = at.upload({3}, DType::i64, {6, 2, 0});  // expert 0 over-loaded in each
      for (int micro_batch = 0; micro_batch < 4; ++micro_batch)
        at.balance.record(at.context, 0, RankCase::batch(0, 8, 32), counts);
      at.balance.update_bias(at.context, step);
      all.push_back(at.download(at.balance.bias(0)));
    }
    return all;
  })[0];
  CHECK(l[0] == std::vector<double>{-0.001, 0.001});
  CHECK(l[1] == std::vector<double>{-0.002, 0.002});
}

TEST_CASE("the balance bias follows the counts of all ranks and is the same on all") {
  Scenario s = layer_scenario(2, 2, 2, 1);
  s.model_config.moe_layer_config.bias_update_rate = 0.001;
  const auto ranks = on_ranks(s, [](RankCase& at) {
    at.start();
    // Rank 0 alone would say that expert 1 is over-loaded; the sum says expert 0.
    const std::vector<double> counts =
        at.rank == 0 ? std::vector<double>{1, 7, 0} : std::vector<double>{6, 2, 0};
    at.balance.record(at.context, 0, RankCase::batch(0, 8, 32), at.upload({3}, DType::i64, counts));
    at.balance.update_bias(at.context, 1);
    return Lists{at.download(at.balance.bias(0))};
  });
  for (const Lists& l : ranks) CHECK(l[0] == std::vector<double>{-0.001, 0.001});
}

TEST_CASE("the balance bias follows counts d steps late, over all ranks") {
  Scenario s = layer_scenario(2, 1, 2, 1);
  s.model_config.moe_layer_config.bias_update_rate = 0.001;
  s.model_config.moe_layer_config.bias_update_delay_steps = 2;
  const auto ranks = on_ranks(s, [](RankCase& at) {
    at.start();
    Lists all;
    // Of step t expert 0 of rank 0 gets c, of rank 1 4: the sum says expert 0 where c > 4.
    const double c[] = {7, 1, 4, 0, 0, 0};
    for (int64_t step = 1; step <= 6; ++step) {
      at.balance.begin_step();
      const double mine = at.rank == 0 ? c[step - 1] : 4;
      at.balance.record(at.context, 0, RankCase::batch(0, 8, 16),
                        at.upload({3}, DType::i64, {mine, 8 - mine, 0}));
      at.balance.update_bias(at.context, step);
      all.push_back(at.download(at.balance.bias(0)));
    }
    return all;
  });
  for (const Lists& l : ranks) {
    // Steps 1 and 2 move nothing; then what steps 1, 2, 3 and 4 ask for: -, +, 0, +.
    const double wanted[] = {0, 0, -0.001, 0, 0, 0.001};
    for (size_t i = 0; i < 6; ++i) {
      CHECK(l[i][0] == Approx(wanted[i]).margin(1e-12));
      CHECK(l[i][1] == Approx(-wanted[i]).margin(1e-12));
    }
  }
}

TEST_CASE("the balance bias turns when the average of excess loads does") {
  Scenario s = layers(1, 1, 2, 1);
  s.model_config.moe_layer_config.bias_update_rate = 0.001;
  s.model_config.moe_layer_config.bias_count_ema = 0.5;
  const Lists l = on_ranks(s, [](RankCase& at) {
    at.start();
    Lists all;
    // Excess of expert 0: 1, then -0.5 for ever. Averages: 0.5, 0, -0.25, so the bias moves by -,
    // not at all, +; by the last counts alone it would turn a step earlier.
    const double c[] = {8, 2, 2};
    for (int64_t step = 1; step <= 3; ++step) {
      at.balance.begin_step();
      at.balance.record(at.context, 0, RankCase::batch(0, 8, 8),
                        at.upload({3}, DType::i64, {c[step - 1], 8 - c[step - 1], 0}));
      at.balance.update_bias(at.context, step);
      all.push_back(at.download(at.balance.bias(0)));
    }
    std::vector<double> names;
    for (const RoutingState& state : at.balance.state())
      names.push_back(state.name == "balance.bias" ? 1 : state.name == "balance.excess" ? 2 : 3);
    all.push_back(names);
    return all;
  })[0];
  CHECK(l[0][0] == Approx(-0.001).epsilon(1e-12));
  CHECK(l[1][0] == Approx(-0.001).epsilon(1e-12));
  CHECK(l[2][0] == Approx(0).margin(1e-15));
  CHECK(l[3] == std::vector<double>{1, 2});  // what a checkpoint has to keep
}

TEST_CASE("global_batch counts grow with the micro-batches and over the ranks") {
  Scenario s = layer_scenario(2, 1, 2, 1);
  s.model_config.moe_layer_config.aux_loss_scope = "global_batch";
  const auto ranks = on_ranks(s, [](RankCase& at) {
    at.start();
    Lists all;
    for (int64_t i = 0; i < 2; ++i) {
      MicroBatch batch = RankCase::batch(0, 4, 16);
      batch.index = i;
      const double mine = at.rank == 0 ? 1 : 3;
      at.balance.record(at.context, 0, batch, at.upload({3}, DType::i64, {mine, 4 - mine, 0}));
      double tokens = 0;
      all.push_back(at.download(at.balance.global_counts(at.context, 0, batch, tokens)));
      all.push_back({tokens});
    }
    return all;
  });
  for (const Lists& l : ranks) {
    CHECK(l[0] == std::vector<double>{4, 4});
    CHECK(l[1] == std::vector<double>{8});
    CHECK(l[2] == std::vector<double>{8, 8});
    CHECK(l[3] == std::vector<double>{16});
  }
}
