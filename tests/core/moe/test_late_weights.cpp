// A router that acts on weights some steps old (routing.weight_delay_steps).

#include <catch2/catch.hpp>
#include <cmath>

#include "core/moe/balance.h"
#include "core/moe/router.h"
#include "tests/support/rank_case.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

constexpr int64_t kHidden = 8, kExperts = 2, kTokens = 3;
const char* const kWeight = "layers.0.moe.router.weight";

Scenario late(int64_t delay) {
  Scenario s = layer_scenario(1, 1, kExperts, 1);
  s.routing.weight_delay_steps = delay;
  return s;
}

/// Weights of a step, whose logits for a token of ones are 0 and `step`.
std::vector<double> weights_of(int64_t step) {
  std::vector<double> w(kHidden * kExperts, 0.0);
  w[1] = static_cast<double>(step);
  return w;
}

/// One training step, or an evaluation, on tokens of ones: {score of expert 1}, then the gradients
/// that one more score of every token's choice gives, of the input and, added up, of the weights.
Lists pass(RankCase& at, Router& router, MicroBatch batch) {
  const Tensor x = at.upload({kTokens, kHidden}, std::vector<double>(kTokens * kHidden, 1.0));
  const Tensor counts =
      at.memory.allocate({kExperts + 1}, DType::i64, MemoryClass::control, "counts");
  const Routing routing = router.forward(at.context, batch, x, counts);
  Lists out{{at.download(routing.probs)[1]}};
  if (!batch.training) return out;
  const Tensor dx = at.upload({kTokens, kHidden}, std::vector<double>(kTokens * kHidden, 0.0));
  router.backward(at.context, batch, routing,
                  at.upload({kTokens, 1}, std::vector<double>(kTokens, 1.0)), dx);
  out.push_back(at.download(dx));
  out.push_back(at.download(at.parameter(kWeight).gradient));
  return out;
}

MicroBatch at_step(int64_t step, int64_t index = 0) {
  MicroBatch batch = RankCase::batch(0, kTokens, kTokens);
  batch.step = step;
  batch.index = index;
  return batch;
}

double sigmoid(int64_t x) { return 1 / (1 + std::exp(-static_cast<double>(x))); }

}  // namespace

TEST_CASE("a late router scores by the weights of d steps ago, in all micro-batches of a step") {
  for (const int64_t delay : {1, 2, 5}) {
    CAPTURE(delay);
    const Lists l = on_ranks(late(delay), [&](RankCase& at) {
      const auto router = make_router(at.parameters, at.router_setup());
      at.start();
      Lists all;
      for (int64_t step = 1; step <= 12; ++step) {
        at.write(at.parameter(kWeight).value, weights_of(step));
        for (const int64_t index : {0, 1})
          all.push_back(pass(at, *router, at_step(step, index))[0]);
        // Evaluation asks the model as it is, and disturbs nothing.
        MicroBatch evaluation = at_step(step);
        evaluation.training = evaluation.backward = false;
        all.push_back(pass(at, *router, evaluation)[0]);
      }
      // What a checkpoint has to keep.
      const auto& state = at.balance.state();
      all.push_back({state.size() == 1 && state[0].name == "layers.0.moe.router.weight.late" &&
                             state[0].tensor.shape == Shape{delay + 1, kHidden, kExperts}
                         ? 1.0
                         : 0.0});
      return all;
    })[0];
    REQUIRE(l.size() == 37);
    CHECK(l[36][0] == 1);
    for (int64_t step = 1; step <= 12; ++step) {
      const auto i = static_cast<size_t>(3 * (step - 1));
      const double then = sigmoid(std::max<int64_t>(1, step - delay));
      CHECK(l[i][0] == Approx(then).epsilon(1e-12));
      CHECK(l[i + 1][0] == Approx(then).epsilon(1e-12));
      CHECK(l[i + 2][0] == Approx(sigmoid(step)).epsilon(1e-12));
    }
  }
}

TEST_CASE("the backward of a late router goes through the weights it acted on") {
  // At step 4 a router two steps late computes what one that is not late does with the weights of
  // step 2.
  const auto at_the_end = [](int64_t delay, std::vector<int64_t> steps) {
    return on_ranks(late(delay), [&](RankCase& at) {
      const auto router = make_router(at.parameters, at.router_setup());
      at.start();
      Lists last;
      for (const int64_t step : steps) {
        at.write(at.parameter(kWeight).value, weights_of(step));
        at.write(at.parameter(kWeight).gradient, weights_of(0));
        last = pass(at, *router, at_step(step));
      }
      return last;
    })[0];
  };
  const Lists delayed = at_the_end(2, {1, 2, 3, 4}), direct = at_the_end(0, {2});
  REQUIRE(delayed.size() == 3);
  CHECK(delayed == direct);
  double largest = 0;
  for (const double v : delayed[1]) largest = std::max(largest, std::abs(v));
  // p = sigmoid(2): dp / dz = p (1 - p), times the weight of 2 on feature 0.
  CHECK(largest == Approx(2 * sigmoid(2) * (1 - sigmoid(2))).epsilon(1e-12));
}
