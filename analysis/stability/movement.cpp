#include "analysis/stability/movement.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace moetwin {

std::vector<double> shares_of(const std::vector<double>& counts, int64_t columns) {
  std::vector<double> shares(counts.size());
  const auto width = static_cast<size_t>(columns);
  if (width == 0) return shares;
  for (size_t row = 0; row + width <= counts.size(); row += width) {
    double sum = 0;
    for (size_t e = 0; e < width; ++e) sum += counts[row + e];
    for (size_t e = 0; e < width; ++e)
      shares[row + e] = sum > 0 ? counts[row + e] / sum : 1 / static_cast<double>(columns);
  }
  return shares;
}

std::vector<double> mean_shares(const Shares& shares) {
  std::vector<double> mean(static_cast<size_t>(shares.columns));
  for (int64_t t = 0; t < shares.rows; ++t)
    for (int64_t e = 0; e < shares.columns; ++e)
      mean[static_cast<size_t>(e)] += shares.at(t, e) / static_cast<double>(shares.rows);
  return mean;
}

std::vector<double> detrended(const Shares& shares) {
  const auto n = static_cast<double>(shares.rows);
  const std::vector<double> mean = mean_shares(shares);
  const double middle = (n - 1) / 2, spread = n * (n * n - 1) / 12;  // of t: mean, sum of squares
  std::vector<double> x(static_cast<size_t>(shares.rows * shares.columns));
  for (int64_t e = 0; e < shares.columns; ++e) {
    double slope = 0;
    for (int64_t t = 0; t < shares.rows; ++t)
      slope += (static_cast<double>(t) - middle) * shares.at(t, e);
    if (spread > 0) slope /= spread;
    for (int64_t t = 0; t < shares.rows; ++t)
      x[static_cast<size_t>(t * shares.columns + e)] = shares.at(t, e) -
                                                       mean[static_cast<size_t>(e)] -
                                                       slope * (static_cast<double>(t) - middle);
  }
  return x;
}

namespace {

double mean_square(const std::vector<double>& x) {
  double sum = 0;
  for (double v : x) sum += v * v;
  return x.empty() ? 0 : sum / static_cast<double>(x.size());
}

}  // namespace

double amplitude(const Shares& shares) {
  if (shares.rows < 2) return 0;
  return static_cast<double>(shares.columns) * std::sqrt(mean_square(detrended(shares)));
}

double sampling_floor(const Shares& shares, double assignments) {
  if (assignments <= 0) return 0;
  double variance = 0;
  for (double p : mean_shares(shares)) variance += p * (1 - p) / assignments;
  return static_cast<double>(shares.columns) *
         std::sqrt(variance / static_cast<double>(shares.columns));
}

std::vector<double> autocorrelation(const std::vector<double>& x, int64_t columns,
                                    int64_t max_lag) {
  std::vector<double> r(static_cast<size_t>(max_lag) + 1);
  const double power = mean_square(x);
  if (power < 1e-12) return r;
  for (int64_t lag = 0; lag <= max_lag; ++lag) {
    const size_t shift = static_cast<size_t>(lag * columns), products = x.size() - shift;
    double sum = 0;
    for (size_t i = 0; i < products; ++i) sum += x[i] * x[i + shift];
    r[static_cast<size_t>(lag)] = sum / static_cast<double>(products) / power;
  }
  return r;
}

Periodicity periodicity(const Shares& shares) {
  Periodicity found;
  if (shares.rows < 16) return found;
  // A quarter of the window holds four periods; short windows make do with two.
  const int64_t max_lag = std::min(shares.rows / 2, std::max<int64_t>(shares.rows / 4, 64));
  const std::vector<double> r = autocorrelation(detrended(shares), shares.columns, max_lag);
  // Independent rows: r has a deviation of about 1 / sqrt((W - k) (E - 1)); the rest is for the
  // largest of max_lag of them.
  found.chance = 4.5 / std::sqrt(static_cast<double>((shares.rows - max_lag) *
                                                     std::max<int64_t>(1, shares.columns - 1)));
  size_t crossing = 1;
  while (crossing < r.size() && r[crossing] > 0) ++crossing;
  std::vector<size_t> maxima;
  for (size_t k = crossing; k + 1 < r.size(); ++k)
    if (r[k] > 0 && r[k] >= r[k - 1] && r[k] >= r[k + 1]) maxima.push_back(k);
  for (size_t k : maxima) found.strength = std::max(found.strength, r[k]);
  for (size_t k : maxima) {
    if (r[k] < 0.9 * found.strength) continue;
    const double bend = r[k - 1] - 2 * r[k] + r[k + 1];
    found.period_rows = static_cast<double>(k) + (bend < 0 ? (r[k - 1] - r[k + 1]) / 2 / bend : 0);
    break;
  }
  return found;
}

Swap swapping(const Shares& shares) {
  const std::vector<double> x = detrended(shares);
  const auto width = static_cast<size_t>(shares.columns);
  std::vector<double> covariance(width * width);
  for (size_t row = 0; row < x.size(); row += width)
    for (size_t a = 0; a < width; ++a)
      for (size_t b = 0; b < width; ++b) covariance[a * width + b] += x[row + a] * x[row + b];
  double trace = 0;
  size_t widest = 0;
  for (size_t a = 0; a < width; ++a) {
    trace += covariance[a * width + a];
    if (covariance[a * width + a] > covariance[widest * width + widest]) widest = a;
  }
  Swap swap;
  if (trace <= 0) return swap;
  // Power iteration from the column that moves most.
  std::vector<double> v(covariance.begin() + static_cast<ptrdiff_t>(widest * width),
                        covariance.begin() + static_cast<ptrdiff_t>((widest + 1) * width));
  double length = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<double> next(width);
    length = 0;
    for (size_t a = 0; a < width; ++a) {
      for (size_t b = 0; b < width; ++b) next[a] += covariance[a * width + b] * v[b];
      length += next[a] * next[a];
    }
    length = std::sqrt(length);
    if (length <= 0) return swap;
    for (size_t a = 0; a < width; ++a) v[a] = next[a] / length;
  }
  swap.explained = length / trace;
  double largest = 0;
  for (double loading : v) largest = std::max(largest, std::abs(loading));
  std::vector<int64_t> order(width);
  for (size_t e = 0; e < width; ++e) order[e] = static_cast<int64_t>(e);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return std::abs(v[static_cast<size_t>(a)]) > std::abs(v[static_cast<size_t>(b)]);
  });
  for (int64_t e : order) {
    const double loading = v[static_cast<size_t>(e)];
    if (std::abs(loading) < largest / 2) break;
    (loading > 0 ? swap.up : swap.down).push_back(e);
  }
  return swap;
}

double time_away(const Shares& shares) {
  if (shares.rows == 0) return 0;
  std::vector<double> median, column(static_cast<size_t>(shares.rows));
  const auto middle = column.begin() + static_cast<ptrdiff_t>(column.size() / 2);
  for (int64_t e = 0; e < shares.columns; ++e) {
    for (int64_t t = 0; t < shares.rows; ++t) column[static_cast<size_t>(t)] = shares.at(t, e);
    std::nth_element(column.begin(), middle, column.end());
    median.push_back(*middle);
  }
  std::vector<double> distance;
  for (int64_t t = 0; t < shares.rows; ++t) {
    double square = 0;
    for (int64_t e = 0; e < shares.columns; ++e) {
      const double d = shares.at(t, e) - median[static_cast<size_t>(e)];
      square += d * d;
    }
    distance.push_back(std::sqrt(square));
  }
  std::vector<double> sorted = distance;
  std::sort(sorted.begin(), sorted.end());
  const double far = sorted[static_cast<size_t>(0.95 * static_cast<double>(sorted.size() - 1))];
  int64_t away = 0;
  for (double d : distance) away += d > far / 2;
  return static_cast<double>(away) / static_cast<double>(shares.rows);
}

}  // namespace moetwin
