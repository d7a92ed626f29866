// Scripted routing, count sums and the balance bias.

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "core/ops/router.h"
#include "tests/conformance/machine.h"

namespace moetwin::conformance {

TEST_CASE("scripted routing gives every expert exactly its count", "[router]") {
  on_each([](Machine& machine) {
    const int64_t tokens = 7, experts = 5, k = 3;
    const std::vector<Values> wanted = {
        {4, 4, 4, 4, 5}, {7, 7, 7, 0, 0}, {0, 0, 0, 0, 0}, {1, 0, 7, 2, 3}};
    for (const Values& w : wanted) {
      const Tensor probs = machine.empty({tokens, experts}, DType::f32),
                   weights = machine.empty({tokens, k}, DType::f32),
                   ids = machine.empty({tokens, k}, DType::i32),
                   counts = machine.empty({experts + 1}, DType::i64);
      machine.launch(
          router_scripted(machine.put({experts}, DType::i64, w), probs, weights, ids, counts, {k}));
      const Values got = machine.get(ids);
      Values n(5, 0.0);
      double sum = 0;
      for (double c : w) sum += c;
      for (size_t t = 0; t < 7; ++t) {
        std::set<double> own;
        for (size_t j = 0; j < 3; ++j) {
          const double e = got[t * 3 + j];
          if (e < 0) continue;
          n[static_cast<size_t>(e)] += 1;
          if (!own.insert(e).second) FAIL_CHECK("token " << t << " has expert " << e << " twice");
        }
      }
      expect_equal(n, w, "assignments");
      Values want_counts = w;
      want_counts.push_back(0);
      expect_equal(machine.get(counts), want_counts, "counts");
      expect(machine.get(weights), Values(21, 1.0 / 3), tolerance(DType::f32), "weights");
      Values p;
      for (size_t t = 0; t < 7; ++t)
        for (double c : w) p.push_back(sum > 0 ? c / sum : 0);
      expect(machine.get(probs), p, tolerance(DType::f32), "probs");
    }
  });
}

TEST_CASE("counts add up in 64 bits", "[router][C10]") {
  on_each([](Machine& machine) {
    const Tensor total = machine.put({3}, DType::i64, {4294967296.0, 0, 5});
    machine.launch(accumulate_counts(machine.put({3}, DType::i64, {2147483648.0, 1, -5}), total));
    expect_equal(machine.get(total), {6442450944.0, 1, 0}, "total");
  });
}

TEST_CASE("the balance bias moves by its rate towards the mean and is centred", "[router]") {
  on_each([](Machine& machine) {
    const Tensor bias = machine.put({4}, DType::f32, {0, 0, 0, 0});
    const Tensor counts = machine.put({4}, DType::i64, {10, 2, 4, 4});  // mean 5
    machine.launch(balance_bias_update(counts, bias, {}, {0.01}));
    // -1, +1, +1, +1 times 0.01, less their mean 0.005.
    expect(machine.get(bias), {-0.015, 0.005, 0.005, 0.005}, tolerance(DType::f32, 4, 0.01),
           "bias");
    const Tensor even = machine.put({2}, DType::f32, {1, -1});
    machine.launch(balance_bias_update(machine.put({2}, DType::i64, {3, 3}), even, {}, {0.5}));
    expect_equal(machine.get(even), {1, -1}, "balanced counts move nothing");
  });
}

TEST_CASE("the balance bias follows the sign of the average excess where there is one",
          "[router]") {
  on_each([](Machine& machine) {
    // Mean 5: excess of now is 4 * 10 / 20 - 1 = 1, and -0.6, -0.2, -0.2. A quarter of it and three
    // of what was: -0.375 + 0.25, 0.375 - 0.15, -0.05, -0.05, so signs differ from those of now.
    const Tensor counts = machine.put({4}, DType::i64, {10, 2, 4, 4});
    const Tensor bias = machine.put({4}, DType::f32, {0, 0, 0, 0});
    const Tensor excess = machine.put({4}, DType::f32, {-0.5, 0.5, 0, 0});
    machine.launch(balance_bias_update(counts, bias, excess, {0.01, 0.75}));
    expect(machine.get(excess), {-0.125, 0.225, -0.05, -0.05}, tolerance(DType::f32), "excess");
    // +1, -1, +1, +1 times 0.01, less their mean 0.005.
    expect(machine.get(bias), {0.005, -0.015, 0.005, 0.005}, tolerance(DType::f32, 4, 0.01),
           "bias");
    // Nothing of the past: as without an average. No counts at all: an excess of 0.
    const Tensor plain = machine.put({4}, DType::f32, {0, 0, 0, 0});
    machine.launch(balance_bias_update(counts, plain, excess, {0.01, 0}));
    expect(machine.get(plain), {-0.015, 0.005, 0.005, 0.005}, tolerance(DType::f32, 4, 0.01),
           "bias without past");
    machine.launch(
        balance_bias_update(machine.put({4}, DType::i64, {0, 0, 0, 0}), plain, excess, {0.01, 0}));
    expect_equal(machine.get(excess), {0, 0, 0, 0}, "excess of no counts");
  });
}

TEST_CASE("a thousand small bias steps are not lost", "[router][P099]") {
  on_each([](Machine& machine) {
    // Two experts: the lighter gains 0.001 a step, the other loses it; centring changes nothing.
    const Tensor bias = machine.put({2}, DType::f32, {0, 0}),
                 counts = machine.put({2}, DType::i64, {1, 3});
    for (int i = 0; i < 1000; ++i) machine.launch(balance_bias_update(counts, bias, {}, {0.001}));
    expect(machine.get(bias), {1.0, -1.0}, {0, 1e-4}, "bias");
  });
}

}  // namespace moetwin::conformance
