#include "tests/conformance/gradient.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

namespace moetwin::conformance {

bool has_doubles(const Machine& machine) {
  const auto& types = machine.real_types();
  return std::find(types.begin(), types.end(), DType::f64) != types.end();
}

void expect_gradient(const Values& x, const std::function<Values(const Values&)>& forward,
                     const Values& weights, const Values& analytic, const char* what,
                     size_t stride) {
  REQUIRE(analytic.size() == x.size());
  const auto loss = [&](const Values& at) {
    const Values out = forward(at);
    REQUIRE(out.size() == weights.size());
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += weights[i] * out[i];
    return sum;
  };
  double largest = 0;
  for (double g : analytic) largest = std::max(largest, std::abs(g));
  const double h = 1e-5;  // truncation h^2, rounding 1e-16 / h: both about 1e-10
  for (size_t i = 0; i < x.size(); i += stride) {
    Values up = x, down = x;
    up[i] += h;
    down[i] -= h;
    const double numeric = (loss(up) - loss(down)) / (2 * h);
    if (!(std::abs(numeric - analytic[i]) <= 1e-6 * std::abs(numeric) + 1e-7 * largest + 1e-9)) {
      FAIL_CHECK(fmt::format("gradient of {}[{}]: {:.9g}, central difference {:.9g}", what, i,
                             analytic[i], numeric));
      return;
    }
  }
  CHECK(true);
}

}  // namespace moetwin::conformance
