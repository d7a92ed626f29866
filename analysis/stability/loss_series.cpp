#include "analysis/stability/loss_series.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace moetwin {

namespace {

double median_of(std::vector<double> v) {
  if (v.empty()) return 0;
  const auto middle = v.begin() + static_cast<ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

std::vector<double> slice(const std::vector<double>& v, size_t from, size_t to) {
  return {v.begin() + static_cast<ptrdiff_t>(from),
          v.begin() + static_cast<ptrdiff_t>(std::min(to, v.size()))};
}

void find_spikes(const LossSeries& s, const std::vector<double>& loss, LossMetrics& m) {
  constexpr size_t kHalf = 25;
  double squares = 0;
  size_t counted = 0;
  for (size_t i = 0; i < loss.size(); ++i) {
    const size_t from = i > kHalf ? i - kHalf : 0, to = std::min(loss.size(), i + kHalf + 1);
    if (to - from < 11) return;
    const std::vector<double> near = slice(loss, from, to);
    const double middle = median_of(near);
    std::vector<double> away;
    double sum = 0;
    for (double v : near) away.push_back(std::abs(v - middle)), sum += v;
    // 1.4826 median deviations are one standard deviation of normal noise.
    const double scale = 1.4826 * median_of(away);
    if (loss[i] - middle > std::max(7 * scale, 0.02 * std::abs(middle)) && loss[i] > middle &&
        i >= kHalf)
      m.spikes.push_back(s.steps[i]);
    if (i >= loss.size() * 3 / 5) {
      const double d = loss[i] - sum / static_cast<double>(near.size());
      squares += d * d;
      ++counted;
    }
  }
  if (counted) m.scatter = std::sqrt(squares / static_cast<double>(counted));
}

}  // namespace

LossMetrics loss_metrics(const LossSeries& series) {
  LossMetrics m;
  std::vector<double> loss;
  for (size_t i = 0; i < series.loss.size(); ++i) {
    if (std::isfinite(series.loss[i])) {
      if (m.non_finite_step < 0) loss.push_back(series.loss[i]);
    } else if (!loss.empty() && m.non_finite_step < 0) {
      m.non_finite_step = series.steps[i];
    }
  }
  if (loss.empty()) return m;
  m.known = true;
  const size_t n = loss.size(), block = std::min<size_t>(25, std::max<size_t>(1, n / 8));
  m.first = median_of(slice(loss, 0, block));
  m.last = median_of(slice(loss, n - block, n));
  m.lowest = m.last;
  size_t lowest_at = n - block;
  for (size_t i = 0; i + block <= n; i += std::max<size_t>(1, block / 2)) {
    const double level = median_of(slice(loss, i, i + block));
    if (level < m.lowest) m.lowest = level, lowest_at = i;
  }
  m.ratio = m.lowest > 0 ? m.last / m.lowest : 1;
  find_spikes(series, loss, m);
  if (m.non_finite_step >= 0) {
    m.diverging = true;
    m.onset_step = m.non_finite_step;
    m.evidence = fmt::format("the loss is not finite from step {} on", m.non_finite_step);
    return m;
  }
  if (n < 40) return m;
  const size_t fifth = n / 5;
  const double before = median_of(slice(loss, n - fifth, n - fifth / 2)),
               after = median_of(slice(loss, n - fifth / 2, n));
  const bool rising =
      after > before + std::max(4 * m.scatter / std::sqrt(static_cast<double>(block)),
                                0.01 * std::abs(before));
  const bool above_start = m.last > 1.02 * m.first;
  const bool far_up = m.ratio > 1.5 && m.last > m.lowest + 0.5;
  m.diverging = rising && (above_start || far_up);
  if (!m.diverging) return m;
  for (size_t i = lowest_at; i + block <= n && m.onset_step < 0; ++i)
    if (median_of(slice(loss, i, i + block)) > m.lowest + (m.last - m.lowest) / 4)
      m.onset_step = series.steps[i];
  m.evidence =
      fmt::format("the loss fell to {:.3g} and rose to {:.3g} ({:.1f} times), and still rises",
                  m.lowest, m.last, m.ratio);
  return m;
}

}  // namespace moetwin
