#pragma once
// How a set of shares moves in time: amplitude, periodicity, what swaps with what.

#include <cstdint>
#include <vector>

namespace moetwin {

/// Rows in time of `columns` shares (one per expert) that sum to 1; a view.
struct Shares {
  const double* data = nullptr;
  int64_t rows = 0, columns = 0;
  double at(int64_t t, int64_t e) const { return data[t * columns + e]; }
  Shares window(int64_t from, int64_t to) const {
    return {data + from * columns, to - from, columns};
  }
};

/// Rows divided by their sums; a row without assignments becomes equal shares.
std::vector<double> shares_of(const std::vector<double>& counts, int64_t columns);

/// Each column less its least-squares line in time, [rows,columns].
std::vector<double> detrended(const Shares& shares);

/// E sqrt(mean x^2) of the detrended shares x: spread in time in units of the mean load.
double amplitude(const Shares& shares);

/// What `amplitude` is when every assignment is drawn independently from the mean shares, so that
/// the shares move by sampling alone: E sqrt(mean_e p_e (1 - p_e) / assignments). With top-k and
/// no repetition the true floor is lower.
double sampling_floor(const Shares& shares, double assignments);

/// Autocorrelation pooled over columns, lags 0 to max_lag, each lag by its own number of products:
/// r[k] = sum x[t,e] x[t+k,e] / ((W - k) E) / mean x^2.
std::vector<double> autocorrelation(const std::vector<double>& x, int64_t columns, int64_t max_lag);

struct Periodicity {
  double strength = 0;     ///< highest local maximum of r after its first r <= 0; 0: none
  double period_rows = 0;  ///< first local maximum of at least 0.9 of it, by a parabola; 0: none
  double chance = 0;       ///< a strength that independent rows reach once in some 10^4 times
};
Periodicity periodicity(const Shares& shares);

/// Mean share of each column.
std::vector<double> mean_shares(const Shares& shares);

/// The two sets of columns that take from each other, by the sign of the first principal component;
/// those with at least half of the largest loading, in order of loading.
struct Swap {
  std::vector<int64_t> up, down;
  double explained = 0;  ///< share of the variance along that component
};
Swap swapping(const Shares& shares);

/// The share of rows that lie further from the median profile than half of the 95th percentile of
/// that distance: small where most rows are alike and a few are far off (bursts), 0.5 and more for
/// waves.
double time_away(const Shares& shares);

}  // namespace moetwin
