#include "core/moe/routing_resampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moetwin {

namespace {

double sum_of(const std::vector<int64_t>& counts) {
  return static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
}

std::vector<double> shares_of(const std::vector<int64_t>& counts) {
  const double sum = sum_of(counts);
  std::vector<double> shares(counts.size(), 1.0 / static_cast<double>(counts.size()));
  if (sum > 0)
    for (size_t e = 0; e < counts.size(); ++e) shares[e] = static_cast<double>(counts[e]) / sum;
  return shares;
}

}  // namespace

double dispersion(const std::vector<const RecordedStep*>& steps) {
  double chi_squared = 0, freedom = 0;
  for (const RecordedStep* step : steps) {
    if (step->sources.size() < 2) continue;
    std::vector<double> all(step->all.size());
    for (const auto& source : step->sources)
      for (size_t e = 0; e < source.size(); ++e) all[e] += static_cast<double>(source[e]);
    const double total = std::accumulate(all.begin(), all.end(), 0.0);
    if (total <= 0) continue;
    for (const auto& source : step->sources) {
      const double n = sum_of(source);
      for (size_t e = 0; e < source.size(); ++e) {
        const double expected = n * all[e] / total;
        if (expected <= 0) continue;
        const double off = static_cast<double>(source[e]) - expected;
        chi_squared += off * off / expected;
      }
    }
    const auto used = std::count_if(all.begin(), all.end(), [](double n) { return n > 0; });
    freedom += static_cast<double>(step->sources.size() - 1) * static_cast<double>(used - 1);
  }
  return freedom > 0 ? std::max(1.0, chi_squared / freedom) : 1.0;
}

std::vector<std::vector<double>> wanted_shares(const std::vector<const RecordedStep*>& steps,
                                               double dispersion) {
  const auto count = static_cast<int64_t>(steps.size());
  std::vector<std::vector<double>> seen, wanted;
  for (const RecordedStep* step : steps) seen.push_back(shares_of(step->all));
  for (int64_t t = 0; t < count; ++t) {
    const int64_t from = std::max<int64_t>(0, t - kResamplingWindow);
    const int64_t to = std::min(count, t + kResamplingWindow + 1);
    std::vector<double> shares = seen[static_cast<size_t>(t)];
    const double n = sum_of(steps[static_cast<size_t>(t)]->all);
    if (n > 0 && to - from > 2) {
      double sum = 0;
      for (size_t e = 0; e < shares.size(); ++e) {
        double mean = 0, variance = 0;
        for (int64_t s = from; s < to; ++s) mean += seen[static_cast<size_t>(s)][e];
        mean /= static_cast<double>(to - from);
        for (int64_t s = from; s < to; ++s) {
          const double off = seen[static_cast<size_t>(s)][e] - mean;
          variance += off * off;
        }
        variance /= static_cast<double>(to - from - 1);
        const double noise = dispersion * mean * (1 - mean) / n;
        const double kept = variance > noise ? 1 - noise / variance : 0;
        shares[e] = mean + kept * (shares[e] - mean);
        sum += shares[e];
      }
      for (double& share : shares) share /= sum;
    }
    wanted.push_back(std::move(shares));
  }
  return wanted;
}

std::vector<double> sampled_shares(const std::vector<double>& wanted, double dispersion,
                                   int64_t assignments, const PhiloxKey& key, uint64_t first) {
  std::vector<double> shares = wanted;
  if (assignments <= 0) return shares;
  for (size_t e = 0; e < shares.size(); ++e) {
    const double p = wanted[e];
    const double deviation = std::sqrt(dispersion * p * (1 - p) / static_cast<double>(assignments));
    shares[e] = std::max(0.0, p + deviation * philox_normal(key, first + e));
  }
  return shares;
}

int64_t layer_at_depth(int64_t index, int64_t count, int64_t recorded) {
  if (count <= 1) return recorded - 1;
  return (index * (recorded - 1) + (count - 1) / 2) / (count - 1);
}

}  // namespace moetwin
