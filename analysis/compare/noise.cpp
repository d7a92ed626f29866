#include "analysis/compare/noise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/philox.h"

namespace moetwin {

namespace {

double mean_of(const std::vector<double>& v) {
  return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
}

double deviation_of(const std::vector<double>& v) {
  const double mean = mean_of(v);
  double squares = 0;
  for (double x : v) squares += (x - mean) * (x - mean);
  return std::sqrt(squares / static_cast<double>(v.size()));
}

/// Geyer's initial positive sequence: sums pairs of autocorrelations until one is negative.
double correlation_length(const std::vector<double>& d) {
  const double mean = mean_of(d);
  const auto covariance = [&](size_t lag) {
    double sum = 0;
    for (size_t i = 0; i + lag < d.size(); ++i) sum += (d[i] - mean) * (d[i + lag] - mean);
    return sum / static_cast<double>(d.size());
  };
  const double power = covariance(0);
  if (power <= 0) return 1;
  double length = 1;
  for (size_t lag = 1; lag + 1 < d.size() / 2; lag += 2) {
    const double pair = (covariance(lag) + covariance(lag + 1)) / power;
    if (pair <= 0) break;
    length += 2 * pair;
  }
  return length;
}

/// Autocorrelation at lag 1 of a first-order process, less the bias of short series with an
/// estimated mean (Kendall: -(1 + 4 rho) / n), within [0, 0.98].
double first_order(const std::vector<double>& d) {
  const double mean = mean_of(d);
  double power = 0, product = 0;
  for (size_t i = 0; i < d.size(); ++i) {
    power += (d[i] - mean) * (d[i] - mean);
    if (i) product += (d[i] - mean) * (d[i - 1] - mean);
  }
  const double rho = power > 0 ? product / power : 0;
  return std::clamp(rho + (1 + 4 * rho) / static_cast<double>(d.size()), 0.0, 0.98);
}

/// Blocks of a first-order process still correlate with their neighbours: by how much their scatter
/// understates the variance of the mean.
double understated(double rho, double block) {
  const double whole = (1 + rho) / (1 - rho);
  return whole / (whole - 2 * rho * (1 - std::pow(rho, block)) / (block * (1 - rho) * (1 - rho)));
}

/// Continued fraction of the regularised incomplete beta function (Lentz).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto clip = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1, d = 1 / clip(1 - (a + b) * x / (a + 1)), h = d;
  for (int m = 1; m <= 5000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / clip(1 + even * d);
    c = clip(1 + even / c);
    h *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / clip(1 + odd * d);
    c = clip(1 + odd / c);
    h *= d * c;
    if (std::abs(d * c - 1) < 1e-15) break;
  }
  return h;
}

double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

}  // namespace

double student_two_sided(double t, double degrees) {
  if (!std::isfinite(t)) return 0;
  return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t));
}

NoiseTest noise_test(const std::vector<double>& a, const std::vector<double>& b, uint64_t stream,
                     double least_rho) {
  NoiseTest test;
  std::vector<double> d;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (std::isfinite(a[i]) && std::isfinite(b[i])) d.push_back(b[i] - a[i]);
  test.steps = static_cast<int64_t>(d.size());
  if (d.empty()) {
    test.why_not = "no common steps";
    return test;
  }
  test.difference = test.low = test.high = mean_of(d);
  const auto [least, most] = std::minmax_element(d.begin(), d.end());
  if (d.size() >= 2 && *least == *most) {  // no noise at all
    test.judged = true;
    test.blocks = test.steps;
    test.block_steps = 1;
    test.p = test.difference == 0 ? 1 : 0;
    return test;
  }
  const auto n = static_cast<double>(d.size());
  test.rho = first_order(d);
  const double rho = std::max(test.rho, least_rho);
  // One and a half standard errors up: blocks too short would claim too much, blocks too long only
  // less.
  const double high = std::min(0.98, rho + 1.5 / std::sqrt(n));
  test.correlation_steps = std::max(correlation_length(d), (1 + high) / (1 - high));
  test.block_steps = n < 8 ? 1 : static_cast<int64_t>(std::ceil(std::cbrt(n)));
  if (n >= 8)
    test.block_steps =
        std::max(test.block_steps, static_cast<int64_t>(std::ceil(2 * test.correlation_steps)));
  test.blocks = test.steps / test.block_steps;
  // Steps that drift together are few values, but a difference ten times their whole scatter needs
  // no more: four blocks then, with what their correlation understates.
  if (test.blocks < 4 && n >= 8 && std::abs(test.difference) > 10 * deviation_of(d)) {
    test.blocks = 4;
    test.block_steps = test.steps / 4;
  }
  if (test.blocks < 4) {
    test.why_not = n < 4 ? std::string("fewer than four common steps")
                         : fmt::format("{} steps that drift together over some {} are too few",
                                       test.steps, std::lround(test.correlation_steps));
    return test;
  }
  std::vector<double> blocks;  // the first steps that fill no block are left out
  const auto skip = d.size() - static_cast<size_t>(test.blocks * test.block_steps);
  for (auto at = d.begin() + static_cast<long>(skip); at != d.end(); at += test.block_steps)
    blocks.push_back(std::accumulate(at, at + test.block_steps, 0.0) /
                     static_cast<double>(test.block_steps));
  test.difference = mean_of(blocks);
  double squares = 0;
  for (double v : blocks) squares += (v - test.difference) * (v - test.difference);
  const auto count = static_cast<double>(blocks.size());
  const double error = std::sqrt(squares / (count - 1) / count *
                                 understated(rho, static_cast<double>(test.block_steps)));
  test.p = student_two_sided(test.difference / error, count - 1);
  test.judged = true;

  constexpr int kResamples = 2000;
  std::vector<double> means;
  const PhiloxKey key = philox_key(stream, Purpose::probe, 0, 0);
  const auto choices = static_cast<uint32_t>(blocks.size());
  for (int r = 0; r < kResamples; ++r) {
    double sum = 0;
    for (uint32_t i = 0; i < choices; ++i)
      sum += blocks[philox_below(key, static_cast<uint64_t>(r) * choices + i, choices)];
    means.push_back(sum / count);
  }
  std::sort(means.begin(), means.end());
  test.low = means[static_cast<size_t>(0.025 * kResamples)];
  test.high = means[static_cast<size_t>(0.975 * kResamples) - 1];
  return test;
}

std::vector<bool> holm(const std::vector<double>& p, double level) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  std::vector<bool> falls(p.size());
  for (size_t i = 0; i < order.size(); ++i) {
    if (p[order[i]] > level / static_cast<double>(p.size() - i)) break;
    falls[order[i]] = true;
  }
  return falls;
}

}  // namespace moetwin
