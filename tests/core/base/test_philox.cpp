#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "core/base/philox.h"

using namespace moetwin;

// Known answers of Random123's kat_vectors for philox4x32-10.
TEST_CASE("philox4x32-10 gives the published vectors") {
  const PhiloxBlock zero = philox4x32({0, 0, 0}, 0);
  CHECK(zero.word[0] == 0x6627e8d5u);
  CHECK(zero.word[1] == 0xe169c58du);
  CHECK(zero.word[2] == 0xbc57ac4cu);
  CHECK(zero.word[3] == 0x9b00dbd8u);
  const PhiloxBlock ones = philox4x32({~0ull, ~0u, ~0u}, ~0ull);
  CHECK(ones.word[0] == 0x408f276du);
  CHECK(ones.word[1] == 0x41c83b0eu);
  CHECK(ones.word[2] == 0xa20bc7c6u);
  CHECK(ones.word[3] == 0x6d5451fdu);
}

TEST_CASE("portable_log agrees with libm to 1e-13") {
  for (double x : {1e-300, 1e-9, 0.3, 0.999999, 1.0, 1.5, 2.0, 3.14159, 1e9, 1e300})
    CHECK(portable_log(x) == Approx(std::log(x)).epsilon(1e-13).margin(1e-15));
}

TEST_CASE("normal draws have the moments of a normal") {
  const PhiloxKey key = philox_key(7, Purpose::init, 3, 0);
  const int n = 200000;
  double mean = 0, square = 0, fourth = 0;
  for (int i = 0; i < n; ++i) {
    const double x = philox_normal(key, i);
    mean += x / n, square += x * x / n, fourth += x * x * x * x / n;
  }
  CHECK(std::abs(mean) < 4 / std::sqrt(n));               // standard error 1/sqrt(n)
  CHECK(std::abs(square - 1) < 4 * std::sqrt(2.0 / n));   // variance of x^2 is 2
  CHECK(std::abs(fourth - 3) < 4 * std::sqrt(96.0 / n));  // variance of x^4 is 105 - 9
}

TEST_CASE("uniforms are never 0 or 1 and streams differ by purpose, layer and step") {
  const PhiloxKey key = philox_key(1, Purpose::jitter, 0, 0);
  for (int i = 0; i < 100000; ++i) {
    const float u = philox_uniform(key, i);
    REQUIRE(u > 0.0f);
    REQUIRE(u < 1.0f);
  }
  const uint32_t base = philox_word(key, 5);
  CHECK(base != philox_word(philox_key(1, Purpose::dropout, 0, 0), 5));
  CHECK(base != philox_word(philox_key(1, Purpose::jitter, 1, 0), 5));
  CHECK(base != philox_word(philox_key(1, Purpose::jitter, 0, 1), 5));
  CHECK(base != philox_word(philox_key(2, Purpose::jitter, 0, 0), 5));
}
