#include "analysis/stability/oscillation.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moetwin {

namespace {

/// A stretch of rows in which every check held.
struct Stretch {
  int64_t from = 0, to = 0;  ///< rows [from, to)
  int64_t checks = 0;        ///< of these, after the steps to skip
};

/// The series that is judged: shares by row, and churn where it is of a probe.
struct Moving {
  std::vector<int64_t> steps;
  std::vector<double> share_values, churn;
  Shares shares;
  double assignments = 0;  ///< a row; 0: shares are exact
};

double mean(const std::vector<double>& v, int64_t from, int64_t to) {
  double sum = 0;
  for (int64_t i = from; i < to; ++i) sum += v[static_cast<size_t>(i)];
  return sum / static_cast<double>(std::max<int64_t>(1, to - from));
}

Moving probe_of(const LayerSeries& layer) {
  Moving m;
  m.steps = layer.probe.steps;
  m.share_values = layer.probe.share;
  m.churn = layer.probe.churn;
  for (double& c : m.churn)
    if (std::isnan(c)) c = 0;  // the first probe has none before it
  return m;
}

Moving load_of(const LayerSeries& layer) {
  Moving m;
  m.steps = layer.steps;
  m.share_values = shares_of(layer.load, layer.experts);
  double sum = 0;
  for (double n : layer.load) sum += n;
  m.assignments = sum / static_cast<double>(std::max<size_t>(1, layer.size()));
  return m;
}

double beyond_sampling(const Shares& shares, double assignments) {
  const double whole = amplitude(shares), floor = sampling_floor(shares, assignments);
  return std::sqrt(std::max(0.0, whole * whole - floor * floor));
}

/// Whether checks of `rows` rows hold: churn and amplitude beyond their lines.
std::vector<Stretch> stretches(const Moving& m, int64_t rows, double least_churn,
                               double least_amplitude, const StabilityOptions& o) {
  std::vector<Stretch> found;
  const auto n = static_cast<int64_t>(m.steps.size());
  bool open = false;
  for (int64_t end = rows; end <= n; end += o.check_every) {
    const bool holds =
        (m.churn.empty() || mean(m.churn, end - rows, end) > least_churn) &&
        beyond_sampling(m.shares.window(end - rows, end), m.assignments) > least_amplitude;
    if (holds && !open) found.push_back({end - rows, end, 0});
    open = holds;
    if (!holds) continue;
    found.back().to = end;
    found.back().checks +=
        m.steps[static_cast<size_t>(end - rows)] - m.steps.front() >= o.skip_steps;
  }
  return found;
}

/// The row about the beginning of a stretch from which on `level` is a quarter of the way from what
/// it was before to what it is within the stretch.
int64_t onset_row(const std::vector<double>& level, const Stretch& stretch) {
  if (stretch.from == 0) return 0;
  const auto n = static_cast<int64_t>(level.size());
  const int64_t from = std::max<int64_t>(0, stretch.from - 64);
  const int64_t inside = std::min(n - 1, stretch.from + 64), to = std::min(n, inside + 128);
  const double before = mean(level, from, std::min(n, from + 64)), after = mean(level, inside, to);
  const double line = before + (after - before) / 4;
  for (int64_t row = from; row + 8 <= to; ++row)
    if (level[static_cast<size_t>(row)] > line && mean(level, row, row + 8) > line &&
        mean(level, row, std::min(n, row + 32)) > line)
      return row;
  return stretch.from;
}

/// Distance of each row from the mean of the 32 rows before: what churn is to a probe.
std::vector<double> unrest(const Shares& shares) {
  std::vector<double> level(static_cast<size_t>(shares.rows));
  std::vector<double> sum(static_cast<size_t>(shares.columns));
  for (int64_t t = 0; t < shares.rows; ++t) {
    const auto held = static_cast<double>(std::min<int64_t>(t, 32));
    double square = 0;
    for (int64_t e = 0; e < shares.columns; ++e) {
      double& s = sum[static_cast<size_t>(e)];
      const double d = held > 0 ? shares.at(t, e) - s / held : 0;
      square += d * d;
      s += shares.at(t, e) - (t >= 32 ? shares.at(t - 32, e) : 0);
    }
    level[static_cast<size_t>(t)] = std::sqrt(square);
  }
  return level;
}

double median_gap(const std::vector<int64_t>& steps) {
  return static_cast<double>(steps.back() - steps.front()) /
         static_cast<double>(std::max<size_t>(1, steps.size() - 1));
}

/// Fills what the window says; whether it is movement is decided by the caller.
void measure(const Moving& m, int64_t from, int64_t to, Oscillation& o) {
  const Shares window = m.shares.window(from, to);
  o.rows = to - from;
  o.churn = m.churn.empty() ? std::numeric_limits<double>::quiet_NaN() : mean(m.churn, from, to);
  o.amplitude = beyond_sampling(window, m.assignments);
}

void judge_probe(Oscillation& o, const StabilityOptions& options) {
  o.margin = std::min(o.churn / options.churn, o.amplitude / options.amplitude);
  o.found = o.margin > 1;
  o.strong = o.churn > options.strong_churn && o.amplitude > options.strong_amplitude;
}

void judge_load(const Shares& window, Oscillation& o, const StabilityOptions& options) {
  const double strength = o.periodicity.strength, chance = o.periodicity.chance;
  const double wave = amplitude(window) * std::sqrt(strength);
  const double large = std::min(o.amplitude / options.load_amplitude,
                                strength / std::max(options.load_periodic, chance));
  const double regular =
      std::min(wave / options.wave_amplitude, strength / std::max(options.wave_periodic, chance));
  o.margin = std::max(large, regular);
  o.amplitude = std::max(o.amplitude, wave);
  o.found = o.margin > 1;
  o.bursts = o.found && time_away(window) < options.burst_time;
  if (o.bursts) o.found = false;
  o.strong = o.found && o.amplitude > options.load_strong;
}

/// Where the stretch that was judged begins and ends in steps.
void place(const Moving& m, const std::vector<Stretch>& all, int64_t to, Oscillation& o,
           const StabilityOptions& options) {
  const auto n = static_cast<int64_t>(m.steps.size());
  const Stretch* last = nullptr;
  for (const Stretch& s : all)
    if (s.from < to && (s.checks >= options.hold || s.to + 2 * options.check_every > n))
      if (!last || s.checks >= last->checks || s.to >= to) last = &s;
  if (!last) return;
  o.checks = last->checks;
  const int64_t row = onset_row(m.churn.empty() ? unrest(m.shares) : m.churn, *last);
  o.onset_step = m.steps[static_cast<size_t>(row)];
  // A check fails some rows after the movement stops: the middle of the last one that held.
  if (last->to + 2 * options.check_every < n) {
    o.ended = true;
    o.end_step = m.steps[static_cast<size_t>(last->to - 1)];
  }
}

}  // namespace

int64_t judged_rows(int64_t rows, const StabilityOptions& options) {
  return std::min({rows, options.window, std::max<int64_t>(128, rows * 2 / 5)});
}

Oscillation find_oscillation(const LayerSeries& layer, const StabilityOptions& options) {
  Oscillation o;
  if (layer.experts < 2) return o;
  o.from_probe = static_cast<int64_t>(layer.probe.size()) >= options.fewest_rows;
  Moving m = o.from_probe ? probe_of(layer) : load_of(layer);
  const auto n = static_cast<int64_t>(m.steps.size());
  if (n < options.fewest_rows) return o;
  m.shares = {m.share_values.data(), n, layer.experts};
  o.enough = true;
  const int64_t width = judged_rows(n, options);
  int64_t from = n - width, to = n;
  const auto judge = [&](int64_t a, int64_t b) {
    measure(m, a, b, o);
    if (o.from_probe) {
      judge_probe(o, options);
      return;
    }
    o.periodicity = periodicity(m.shares.window(a, b));
    judge_load(m.shares.window(a, b), o, options);
  };
  judge(from, to);

  std::vector<Stretch> all;
  if (o.from_probe) {
    all = stretches(m, options.check_rows, options.check_churn, options.check_amplitude, options);
    // Movement that has ended counts when it filled a whole window; a re-ordering after a change of
    // rates does not.
    for (int64_t end = to - width / 8; !o.found && end - width >= 0; end -= width / 8) {
      if (m.steps[static_cast<size_t>(end - width)] - m.steps.front() < options.skip_steps) break;
      Oscillation before = o;
      measure(m, end - width, end, before);
      judge_probe(before, options);
      bool filled = false;
      for (const Stretch& s : all) filled = filled || (s.from <= end - width && s.to >= end);
      if (!before.strong || !filled) continue;
      o = before;
      from = end - width;
      to = end;
    }
  } else if (o.found) {
    const auto rows =
        std::max(options.check_rows, static_cast<int64_t>(2 * o.periodicity.period_rows + 0.5));
    all = stretches(m, std::min(rows, n), 0, o.amplitude / 2, options);
  }
  if (!o.found) {
    for (const Stretch& s : all)
      if (s.checks >= options.hold) o.moved_until = m.steps[static_cast<size_t>(s.to - 1)];
    return o;
  }
  const Shares window = m.shares.window(from, to);
  if (o.from_probe) o.periodicity = periodicity(window);
  o.periodic =
      o.periodicity.strength > std::max(options.periodic, o.from_probe ? 0 : o.periodicity.chance);
  if (o.periodic) o.period_steps = o.periodicity.period_rows * median_gap(m.steps);
  o.swap = swapping(window);
  place(m, all, to, o, options);
  return o;
}

}  // namespace moetwin
