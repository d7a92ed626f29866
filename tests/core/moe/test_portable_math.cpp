#include <catch2/catch.hpp>
#include <cmath>

#include "core/moe/portable_math.h"

using namespace moetwin;

TEST_CASE("the portable exponential is that of the C library") {
  double worst = 0;
  for (double x = -700; x <= 700; x += 0.37)
    worst = std::max(worst, std::abs(portable_exp(x) / std::exp(x) - 1));
  CHECK(worst < 1e-14);
  CHECK(portable_exp(0) == 1.0);
  CHECK(portable_exp(-1e9) == 0.0);
}

TEST_CASE("the portable cosine is exact where it can be and close elsewhere") {
  CHECK(portable_cos_turn(0, 20) == 1.0);
  CHECK(portable_cos_turn(5, 20) == 0.0);
  CHECK(portable_cos_turn(10, 20) == -1.0);
  CHECK(portable_cos_turn(15, 20) == 0.0);
  CHECK(portable_cos_turn(0, 1) == 1.0);
  CHECK(portable_cos_turn(1, 2) == -1.0);
  const long double pi = std::acos(-1.0L);
  double worst = 0;
  for (int64_t d = 1; d <= 97; ++d)
    for (int64_t n = 0; n < d; ++n)
      worst = std::max(
          worst, std::abs(portable_cos_turn(n, d) - static_cast<double>(std::cos(2 * pi * n / d))));
  CHECK(worst < 1e-15);
}
