#include <catch2/catch.hpp>

#include "analysis/stability/movement.h"
#include "analysis/stability/rotation.h"
#include "tests/analysis/series.h"

namespace moetwin {
namespace {

constexpr double kPi = 3.14159265358979323846;

/// Four experts; 0 and 1 rise while 2 and 3 fall: 1/4 (1 +- a cos(2 pi t / period)).
std::vector<double> wave(int64_t rows, double a, double period) {
  std::vector<double> shares;
  for (int64_t t = 0; t < rows; ++t) {
    const double c = a * std::cos(2 * kPi * static_cast<double>(t) / period);
    for (double sign : {1.0, 1.0, -1.0, -1.0}) shares.push_back(0.25 * (1 + sign * c));
  }
  return shares;
}

Shares view(const std::vector<double>& shares, int64_t columns) {
  return {shares.data(), static_cast<int64_t>(shares.size()) / columns, columns};
}

}  // namespace

TEST_CASE("the amplitude of a wave is its height over the square root of two") {
  // A whole number of periods: mean of cos^2 is 1/2, and the trend of a cosine is small.
  const std::vector<double> shares = wave(800, 0.6, 20);
  CHECK(amplitude(view(shares, 4)) == Approx(0.6 / std::sqrt(2)).epsilon(0.002));
}

TEST_CASE("a steady drift is no movement") {
  std::vector<double> shares;
  for (int64_t t = 0; t < 300; ++t) {
    const double d = 0.001 * static_cast<double>(t);
    for (double s : {0.5 - d, 0.5 + d}) shares.push_back(s);
  }
  CHECK(amplitude(view(shares, 2)) < 1e-9);
}

TEST_CASE("the sampling floor is what independent draws give") {
  // E sqrt(mean p (1 - p) / n) = 8 sqrt(7/64/512) = sqrt(7/512) = 0.1169 for equal shares.
  std::vector<double> shares;
  for (int64_t t = 0; t < 2000; ++t)
    for (int64_t n : test::multinomial(std::vector<double>(8, 0.125), 512, 3, t))
      shares.push_back(static_cast<double>(n) / 512);
  CHECK(sampling_floor(view(shares, 8), 512) == Approx(std::sqrt(7.0 / 512)).epsilon(0.01));
  CHECK(amplitude(view(shares, 8)) == Approx(std::sqrt(7.0 / 512)).epsilon(0.02));
}

TEST_CASE("the autocorrelation of an alternating series is plus and minus one") {
  std::vector<double> x;
  for (int t = 0; t < 100; ++t) x.push_back(t % 2 ? -1 : 1);
  const std::vector<double> r = autocorrelation(x, 1, 4);
  for (size_t k = 0; k < 5; ++k) CHECK(r[k] == Approx(k % 2 ? -1 : 1));
}

TEST_CASE("periods are found as they are") {
  const double period = GENERATE(2, 5, 7.5, 28, 111, 150);
  const std::vector<double> shares = wave(800, 0.3, period);
  const Periodicity p = periodicity(view(shares, 4));
  CHECK(p.strength > 0.9);
  // 7.5 has its first good match at two periods; the others at one.
  const double expected = period == 7.5 ? 7.5 : period;
  const double multiple = std::round(p.period_rows / expected);
  CHECK(multiple >= 1);
  CHECK(multiple <= 2);
  CHECK(p.period_rows / multiple == Approx(expected).epsilon(0.05));
}

TEST_CASE("independent rows have no period beyond chance") {
  int beyond = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<double> shares;
    for (int64_t t = 0; t < 256; ++t)
      for (int64_t n : test::multinomial({0.4, 0.3, 0.2, 0.1}, 200, seed, t))
        shares.push_back(static_cast<double>(n) / 200);
    const Periodicity p = periodicity(view(shares, 4));
    beyond += p.strength > p.chance;
  }
  CHECK(beyond == 0);
}

TEST_CASE("experts that swap are told apart") {
  const std::vector<double> shares = wave(200, 0.5, 20);
  const Swap swap = swapping(view(shares, 4));
  CHECK(swap.explained == Approx(1));
  CHECK(swap.up.size() == 2);
  const bool first_pair = swap.up.front() < 2;
  CHECK((first_pair ? swap.up : swap.down) == std::vector<int64_t>{0, 1});
  CHECK((first_pair ? swap.down : swap.up) == std::vector<int64_t>{2, 3});
}

TEST_CASE("a wave is away from its median most of the time, a burst seldom") {
  CHECK(time_away(view(wave(800, 0.5, 20), 4)) > 0.5);
  std::vector<double> bursts;
  for (int64_t t = 0; t < 400; ++t)
    for (int64_t e = 0; e < 4; ++e) bursts.push_back(t % 20 >= 2 ? 0.25 : e == 0 ? 0.7 : 0.1);
  CHECK(time_away(view(bursts, 4)) == Approx(0.1).margin(0.01));
}

TEST_CASE("a hot set that moves on is a rotation; one that swaps back is not") {
  std::vector<double> on, back;
  for (int64_t t = 0; t < 200; ++t)
    for (int64_t e = 0; e < 5; ++e) {
      on.push_back(t / 10 % 5 == e ? 0.6 : 0.1);
      back.push_back(t / 10 % 2 == e ? 0.6 : 0.1);
    }
  const Rotation rotation = find_rotation(view(on, 5), 1000);
  CHECK(rotation.found);
  CHECK(rotation.moves == 19);
  CHECK(rotation.dwell_rows == Approx(10));
  CHECK(rotation.order == std::vector<int64_t>{0, 1, 2, 3, 4});
  CHECK(rotation.excess == Approx(2));
  CHECK(!find_rotation(view(back, 5), 1000).found);
}

}  // namespace moetwin
