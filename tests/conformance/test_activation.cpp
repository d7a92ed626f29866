// GELU and SwiGLU with their backward.

#include <catch2/catch.hpp>
#include <cmath>

#include "core/ops/activation.h"
#include "tests/conformance/gradient.h"

namespace moetwin::conformance {
namespace {

double gelu_of(double x, bool tanh_form) {
  return 0.5 * x *
         (1 + (tanh_form ? std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))
                         : std::erf(x / std::sqrt(2.0))));
}
double silu_of(double x) { return x / (1 + std::exp(-x)); }

/// Far below zero 1 + erf and 1 - tanh^2 cancel: a unit of 1 in fp32, times the 3.5 x / 2 beside
/// it.
Tolerance curve(DType d) { return tolerance(d, 16); }

}  // namespace

TEST_CASE("gelu in both forms over its whole range", "[gelu]") {
  on_each_type([](Machine& machine, DType d) {
    for (const bool tanh_form : {false, true}) {
      Values x = draw(1031, 1, 8);
      for (double v : {0.0, -0.0, 30.0, -30.0, 1e-3, -1e-3}) x.push_back(v);
      x = rounded(x, d);
      const int64_t n = static_cast<int64_t>(x.size());
      Values want = x;
      for (double& v : want) v = gelu_of(v, tanh_form);
      const Tensor y = machine.empty({n}, d);
      machine.launch(gelu(machine.put({n}, d, x), y, {tanh_form}));
      expect(machine.get(y), want, curve(d), "y");
      const Tensor nan = machine.put({1}, d, {std::nan("")});
      machine.launch(gelu(nan, nan, {tanh_form}));
      CHECK(std::isnan(machine.get(nan)[0]));
    }
  });
}

TEST_CASE("gelu's backward against central differences, also in place", "[gelu][gradient]") {
  on_each_type([](Machine& machine, DType d) {
    for (const bool tanh_form : {false, true}) {
      const Values x = rounded(draw(517, 2, 6), d), dy = rounded(draw(517, 3), d);
      Values want(x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        const double h = 1e-6;
        want[i] = dy[i] * (gelu_of(x[i] + h, tanh_form) - gelu_of(x[i] - h, tanh_form)) / (2 * h);
      }
      const Tensor g = machine.put({517}, d, dy);
      machine.launch(gelu_backward(machine.put({517}, d, x), g, g, {tanh_form}));
      Tolerance t = curve(d);
      t.abs += 1e-9;
      expect(machine.get(g), want, t, "dx");
    }
  });
}

TEST_CASE("swiglu and its backward", "[swiglu][gradient]") {
  on_each_type([](Machine& machine, DType d) {
    const int64_t r = 5, f = 37;
    const Values x = rounded(draw(r * 2 * f, 4, 5), d), dy = rounded(draw(r * f, 5), d);
    Values want, want_dx(x.size());
    for (int64_t i = 0; i < r; ++i)
      for (int64_t j = 0; j < f; ++j) {
        const size_t g = static_cast<size_t>(i * 2 * f + j), u = g + static_cast<size_t>(f);
        const double e = dy[static_cast<size_t>(i * f + j)], s = 1 / (1 + std::exp(-x[g]));
        want.push_back(silu_of(x[g]) * x[u]);
        want_dx[g] = e * x[u] * (s + x[g] * s * (1 - s));
        want_dx[u] = e * silu_of(x[g]);
      }
    const Tensor tx = machine.put({r, 2 * f}, d, x), y = machine.empty({r, f}, d);
    machine.launch(swiglu(tx, y));
    expect(machine.get(y), want, tolerance(d, 1, 25), "y");
    const Tensor dx = machine.empty({r, 2 * f}, d);
    machine.launch(swiglu_backward(tx, machine.put({r, f}, d, dy), dx));
    expect(machine.get(dx), want_dx, tolerance(d, 1, 25), "dx");
    if (d != DType::f64) return;
    expect_gradient(
        x,
        [&](const Values& v) {
          machine.launch(swiglu(machine.put({r, 2 * f}, d, v), y));
          return machine.get(y);
        },
        dy, machine.get(dx), "swiglu");
  });
}

TEST_CASE("a host row count cuts activations to the leading rows", "[gelu][swiglu]") {
  on_each([](Machine& machine) {
    const DType d = DType::f32;
    const Values x = draw(12, 6);
    const Tensor tx = machine.put({4, 3}, d, x), y = machine.put({4, 3}, d, Values(12, 9.0));
    OpCall call = gelu(tx, y, {});
    call.sizes = sizes({2});
    machine.launch(call);
    Values want = x;
    for (size_t i = 0; i < 12; ++i) want[i] = i < 6 ? gelu_of(rounded(x[i], d), false) : 9;
    expect(machine.get(y), want, tolerance(d), "y");
  });
}

}  // namespace moetwin::conformance
