// Balance losses and the router's backward.

#include <catch2/catch.hpp>
#include <cmath>

#include "core/ops/router.h"
#include "tests/conformance/gradient.h"

namespace moetwin::conformance {
namespace {

RouterLossAttr attr_of(int64_t k, Score score = Score::softmax) {
  RouterLossAttr a;
  a.top_k = k, a.score = score;
  return a;
}
/// {balance, z, importance CV^2, load variance, sums of normalised scores}.
Values losses(Machine& machine, DType d, int64_t tokens, int64_t experts, const Values& logits,
              const Values& probs, const Values& ids, const RouterLossAttr& a,
              const Values& global = {}) {
  const Tensor out = machine.put({4 + experts}, d, Values(static_cast<size_t>(4 + experts), 0.0));
  machine.launch(router_losses(
      machine.put({tokens, experts}, d, logits), machine.put({tokens, experts}, d, probs),
      machine.put({tokens, a.top_k}, DType::i32, ids),
      global.empty() ? Tensor{} : machine.put({experts}, DType::i64, global), out, a));
  return machine.get(out);
}
Values repeat(const Values& row, int times) {
  Values all;
  for (int i = 0; i < times; ++i) append(all, row);
  return all;
}

}  // namespace

TEST_CASE("balance loss is 1 when balanced and E sum f P when not", "[router][P073][P077]") {
  on_each([](Machine& machine) {
    const Values zero(32, 0.0);
    const auto balance = [&](const Values& p, const Values& ids, Score score = Score::softmax) {
      return losses(machine, DType::f32, 8, 4, zero, repeat(p, 8), ids, attr_of(1, score))[0];
    };
    CHECK(balance({.25, .25, .25, .25}, {0, 1, 2, 3, 0, 1, 2, 3}) == Approx(1.0).epsilon(1e-6));
    CHECK(balance({.7, .1, .1, .1}, Values(8, 0.0)) == Approx(2.8).epsilon(1e-6));
    // Sigmoid scores are normalised per token: 1 for uniform routing however small they are.
    const Values tiny(4, 1e-25);
    CHECK(balance(tiny, {0, 1, 2, 3, 0, 1, 2, 3}, Score::sigmoid) == Approx(1.0).epsilon(1e-6));
    CHECK(balance(Values(4, 0.0), {0, 1, 2, 3, 0, 1, 2, 3}, Score::sigmoid) ==
          Approx(1.0).epsilon(1e-6));
  });
}

TEST_CASE("uniform routing of tiny sigmoid scores stays at 1", "[router][P079]") {
  on_each([](Machine& machine) {
    const double l = losses(machine, DType::f32, 4, 4, Values(16, 0.0), Values(16, 1e-25),
                            {0, 1, 2, 3}, attr_of(1, Score::sigmoid))[0];
    CHECK(l == Approx(1.0).epsilon(1e-3));
  });
}

TEST_CASE("scopes: per sequence the mean of each, global from given counts", "[router][P074]") {
  on_each([](Machine& machine) {
    // Two sequences of four tokens; the first all to expert 0, the second all to expert 1.
    Values probs = repeat({1, 0}, 4);
    append(probs, repeat({0, 1}, 4));
    const Values ids = {0, 0, 0, 0, 1, 1, 1, 1}, zero(16, 0.0);
    RouterLossAttr a = attr_of(1);
    CHECK(losses(machine, DType::f32, 8, 2, zero, probs, ids, a)[0] == Approx(1.0));
    a.rows_per_scope = 4;
    CHECK(losses(machine, DType::f32, 8, 2, zero, probs, ids, a)[0] == Approx(2.0));
    // Globally three quarters of 16 tokens go to expert 0: 2 (0.75 * 0.5 + 0.25 * 0.5) = 1; and
    // with all local probability on expert 0, 2 * 0.75.
    a.rows_per_scope = 0;
    a.global_tokens = 16;
    CHECK(losses(machine, DType::f32, 8, 2, zero, probs, ids, a, {12, 4})[0] == Approx(1.0));
    CHECK(losses(machine, DType::f32, 8, 2, zero, repeat({1, 0}, 8), ids, a, {12, 4})[0] ==
          Approx(1.5));
  });
}

TEST_CASE("z-loss in shifted form", "[router][P096][P098]") {
  on_each([](Machine& machine) {
    const auto z = [&](const Values& logits, int64_t experts) {
      return losses(machine, DType::f32, 1, experts, logits, Values(logits.size(), 0.25), {0},
                    attr_of(1))[1];
    };
    CHECK(z({100, 0, 0, 0}, 4) == Approx(10000.0).epsilon(1e-6));
    CHECK(z(Values(4, 0.0), 4) == Approx(1.9218).epsilon(1e-4));
    CHECK(z(Values(8, 0.0), 8) == Approx(4.3241).epsilon(1e-4));
  });
}

TEST_CASE("importance CV^2 and load variance", "[router][C11]") {
  on_each([](Machine& machine) {
    // Sums of scores 1.5 and 0.5: mean 1, variance 0.25. Counts 3 and 1 with k = 2: variance 1.
    const Values l = losses(machine, DType::f32, 2, 2, Values(4, 0.0), {.75, .25, .75, .25},
                            {0, 1, 0, -1}, attr_of(2));
    CHECK(l[2] == Approx(0.25).epsilon(1e-6));
    CHECK(l[3] == Approx(0.25).epsilon(1e-6));  // counts 2 and 1: mean 1.5
    const Values all = losses(machine, DType::f32, 4, 2, Values(8, 0.0), repeat({.5, .5}, 4),
                              {0, 0, 0, 1}, attr_of(1));
    CHECK(all[3] == Approx(1.0));
    CHECK(all[2] == Approx(0.0));
  });
}

TEST_CASE("a micro-batch's losses count by its weight, its scores are summed", "[router]") {
  on_each([](Machine& machine) {
    RouterLossAttr a = attr_of(1);
    a.weight = 0.25;
    // Two tokens, both to expert 0: E sum f P = 2 x 1 x 0.75; scores sum to 2 x {.75, .25}.
    const Values all =
        losses(machine, DType::f32, 2, 2, Values(4, 0.0), repeat({.75, .25}, 2), {0, 0}, a);
    CHECK(all[0] == Approx(0.25 * 1.5));
    CHECK(all[3] == Approx(0.25 * 1.0));  // counts {2, 0}, mean 1: (1 + 1) / 2
    CHECK(all[4] == Approx(1.5));
    CHECK(all[5] == Approx(0.5));
  });
}

TEST_CASE("losses are added up and no tokens add nothing", "[router]") {
  on_each([](Machine& machine) {
    const Tensor out = machine.put({8}, DType::f32, {1, 2, 3, 4, 5, 6, 7, 8});
    machine.launch(router_losses(machine.empty({0, 4}, DType::f32),
                                 machine.empty({0, 4}, DType::f32),
                                 machine.empty({0, 2}, DType::i32), {}, out, attr_of(2)));
    expect_equal(machine.get(out), {1, 2, 3, 4, 5, 6, 7, 8}, "losses");
  });
}

TEST_CASE("the router's backward against central differences", "[router][gradient][P083]") {
  on_each([](Machine& machine) {
    if (!has_doubles(machine)) return;
    const DType d = DType::f64;
    const int64_t tokens = 12, experts = 5;
    const Values global = {30, 20, 10, 5, 7};
    for (Score score : {Score::softmax, Score::sigmoid})
      for (const int64_t k : {1, 3})
        for (const double p : {0.0, 1.0, 2.0, 3.0})
          for (int terms = 0; terms < 5; ++terms) {
            INFO("score " << static_cast<int>(score) << " k " << k << " p " << p << " terms "
                          << terms);
            RouterLossAttr a = attr_of(k, score);
            a.p_norm = p, a.weight_scale = 1.5;
            if (terms == 1) a.aux = 0.7;
            if (terms == 2) a.z = 0.3, a.aux = 0.2, a.rows_per_scope = 4;
            if (terms == 3) a.importance = 0.4;
            if (terms == 4) a.aux = 0.5, a.global_tokens = 24;
            const Values logits = draw(tokens * experts, 1, 2), d_w = draw(tokens * k, 2);
            SelectAttr s;
            s.score = score, s.top_k = k, s.p_norm = p, s.weight_scale = 1.5;
            const Tensor probs = machine.empty({tokens, experts}, d),
                         weights = machine.empty({tokens, k}, d),
                         ids = machine.empty({tokens, k}, DType::i32),
                         counts = machine.empty({experts + 1}, DType::i64);
            const Tensor global_counts =
                terms == 4 ? machine.put({experts}, DType::i64, global) : Tensor{};
            const auto forward = [&](const Values& at) {
              const Tensor l = machine.put({tokens, experts}, d, at);
              machine.launch(router_select(l, {}, probs, weights, ids, counts, s));
              Values out = machine.get(weights);
              const Tensor sums =
                  machine.put({4 + experts}, d, Values(static_cast<size_t>(4 + experts), 0.0));
              machine.launch(router_losses(l, probs, ids, global_counts, sums, a));
              Values extra = machine.get(sums);
              extra.resize(4);
              out.insert(out.end(), extra.begin(), extra.end());
              return out;
            };
            Values upstream = d_w;
            for (double factor : {a.aux, a.z, a.importance, 0.0}) upstream.push_back(factor);
            forward(logits);
            const Tensor dl = machine.empty({tokens, experts}, d);
            machine.launch(router_backward(machine.put({tokens, experts}, d, logits), probs, ids,
                                           weights, machine.put({tokens, k}, d, d_w), global_counts,
                                           dl, a));
            expect_gradient(logits, forward, upstream, machine.get(dl), "logits");
          }
  });
}

TEST_CASE("normalising by p below 1: a chosen score of zero brings no NaN", "[router]") {
  on_each([](Machine& machine) {
    // sigmoid(-200) is 0 in fp32: the second choice has weight 0 and, in the limit, no gradient.
    const int64_t experts = 3;
    const DType d = DType::f32;
    SelectAttr s;
    s.score = Score::sigmoid;
    s.top_k = 2;
    s.p_norm = 0.5;
    const Tensor logits = machine.put({1, experts}, d, {1, -200, -300}),
                 probs = machine.empty({1, experts}, d), weights = machine.empty({1, 2}, d),
                 ids = machine.empty({1, 2}, DType::i32),
                 counts = machine.empty({experts + 1}, DType::i64),
                 dl = machine.empty({1, experts}, d);
    machine.launch(router_select(logits, {}, probs, weights, ids, counts, s));
    RouterLossAttr a = attr_of(2);
    a.score = Score::sigmoid;
    a.p_norm = 0.5;
    machine.launch(
        router_backward(logits, probs, ids, weights, machine.put({1, 2}, d, {2, 3}), {}, dl, a));
    CHECK(machine.get(weights) == std::vector<double>{1, 0});
    for (double g : machine.get(dl)) CHECK(g == Approx(0).margin(1e-6));
  });
}

TEST_CASE("k = 1: the task reaches the router through raw scores, never normalised ones",
          "[router][P054]") {
  on_each([](Machine& machine) {
    const int64_t tokens = 3, experts = 4;
    const DType d = DType::f32;
    SelectAttr s;
    for (const double p : {0.0, 1.0}) {
      s.p_norm = p;
      const Tensor logits = machine.put({tokens, experts}, d, draw(12, 3)),
                   probs = machine.empty({tokens, experts}, d),
                   weights = machine.empty({tokens, 1}, d),
                   ids = machine.empty({tokens, 1}, DType::i32),
                   counts = machine.empty({experts + 1}, DType::i64),
                   dl = machine.empty({tokens, experts}, d);
      machine.launch(router_select(logits, {}, probs, weights, ids, counts, s));
      RouterLossAttr a = attr_of(1);
      a.p_norm = p;
      machine.launch(router_backward(logits, probs, ids, weights,
                                     machine.put({tokens, 1}, d, {1, 1, 1}), {}, dl, a));
      double norm = 0;
      for (double g : machine.get(dl)) norm += g * g;
      if (p == 0)
        CHECK(norm > 0.01);
      else
        CHECK(norm == 0);
    }
  });
}

}  // namespace moetwin::conformance
