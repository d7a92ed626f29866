// AdamW, SGD, sums of squares and the clip factor.

#include <catch2/catch.hpp>
#include <cmath>

#include "core/ops/optimizer.h"
#include "tests/conformance/machine.h"

namespace moetwin::conformance {

TEST_CASE("AdamW for three steps with decay, bias correction and a gradient scale", "[adamw]") {
  on_each_type([](Machine& machine, DType d) {
    // fp32 masters whatever the gradients are; fp64 throughout for fp64.
    const DType master = real_dtype(d);
    const int64_t n = 2053;
    Values p = rounded(draw(n, 1), master), m(static_cast<size_t>(n)), v(static_cast<size_t>(n));
    const Tensor tp = machine.put({n}, master, p), tm = machine.put({n}, master, m),
                 tv = machine.put({n}, master, v), scale = machine.put({1}, master, {0.5});
    AdamWAttr a;
    a.learning_rate = 0.01, a.weight_decay = 0.1;
    for (int64_t step = 1; step <= 3; ++step) {
      const Values g = rounded(draw(n, 10 + static_cast<uint64_t>(step)), d);
      a.step = step;
      machine.launch(adamw(tp, machine.put({n}, d, g), tm, tv, scale, a));
      for (size_t i = 0; i < p.size(); ++i) {
        const double gradient = 0.5 * g[i], t = static_cast<double>(step);
        m[i] = 0.9 * m[i] + 0.1 * gradient;
        v[i] = 0.95 * v[i] + 0.05 * gradient * gradient;
        p[i] -= 0.01 * 0.1 * p[i];
        p[i] -= 0.01 * (m[i] / (1 - std::pow(0.9, t))) /
                (std::sqrt(v[i] / (1 - std::pow(0.95, t))) + 1e-8);
      }
    }
    expect(machine.get(tp), p, tolerance(master, 6, 0.2), "parameter");
    expect(machine.get(tm), m, tolerance(master, 3), "m");
    expect(machine.get(tv), v, tolerance(master, 3), "v");
  });
}

TEST_CASE("a zero gradient moves nothing but the decay", "[adamw]") {
  on_each([](Machine& machine) {
    const Tensor p = machine.put({2}, DType::f32, {1, -2}),
                 g = machine.put({2}, DType::f32, {0, 0}), m = machine.put({2}, DType::f32, {0, 0}),
                 v = machine.put({2}, DType::f32, {0, 0}), s = machine.put({1}, DType::f32, {1});
    AdamWAttr a;
    a.learning_rate = 0.5;
    machine.launch(adamw(p, g, m, v, s, a));
    expect_equal(machine.get(p), {1, -2}, "parameter");
    a.weight_decay = 0.25;
    machine.launch(adamw(p, g, m, v, s, a));
    expect_equal(machine.get(p), {0.875, -1.75}, "decayed");
  });
}

TEST_CASE("SGD", "[sgd]") {
  on_each_type([](Machine& machine, DType d) {
    const int64_t n = 37;
    Values p = rounded(draw(n, 2), d);
    const Values g = rounded(draw(n, 3), d);
    const Tensor tp = machine.put({n}, d, p);
    machine.launch(
        sgd(tp, machine.put({n}, d, g), machine.put({1}, real_dtype(d), {2}), {0.1, 0.5}));
    for (size_t i = 0; i < p.size(); ++i) p[i] = p[i] * (1 - 0.1 * 0.5) - 0.1 * 2 * g[i];
    expect(machine.get(tp), p, tolerance(d), "parameter");
  });
}

TEST_CASE("sums of squares add to what is there", "[sum_squares][C16]") {
  on_each_type([](Machine& machine, DType d) {
    const int64_t n = 100003;
    const Values x = rounded(draw(n, 4), d);
    long double exact = 5;
    for (double v : x) exact += static_cast<long double>(v) * static_cast<long double>(v);
    const double want = static_cast<double>(exact);
    const Tensor sum = machine.put({1}, real_dtype(d), {5});
    machine.launch(sum_squares(machine.put({n}, d, x), sum));
    expect(machine.get(sum), {want}, {1e-5 + 64 * half_ulp(real_dtype(d)), 0}, "sum");
    if (d == DType::f32 || d == DType::f64)  // far better than a running fp32 sum
      expect(machine.get(sum), {want}, {16 * half_ulp(d), 0}, "sum");
  });
}

TEST_CASE("the clip factor: norm of true tokens, clipped only above the limit", "[clip][P121]") {
  on_each([](Machine& machine) {
    const Tensor out = machine.empty({2}, DType::f32);
    const auto run = [&](double squares, double valid, double nominal, double limit) {
      machine.launch(
          clip_factor(machine.put({2}, DType::f32, {squares, valid}), out, {limit, nominal}));
      return machine.get(out);
    };
    // Stage norms 3 and 4: 25 squares in all, norm 5, clip 1.
    expect(run(25, 8, 8, 1), {1 / (5 + 1e-6), 5}, tolerance(DType::f32), "clipped");
    // Twice the nominal tokens counted: half of the norm.
    expect(run(25, 16, 8, 1), {0.5 / (2.5 + 1e-6), 2.5}, tolerance(DType::f32), "unscaled");
    expect(run(25, 8, 8, 10), {1, 5}, tolerance(DType::f32), "below the limit");
    expect(run(25, 4, 8, 0), {2, 10}, tolerance(DType::f32), "no limit");
    expect(run(0, 0, 8, 1), {0, 0}, tolerance(DType::f32), "no valid token");
  });
}

}  // namespace moetwin::conformance
