#include "analysis/stability/rotation.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace moetwin {

namespace {

using Set = std::vector<int64_t>;

struct Dwell {
  int64_t set = 0;  ///< index of a known set
  int64_t rows = 0;
};

Set hot_set(const Shares& shares, int64_t t) {
  double highest = 0;
  for (int64_t e = 0; e < shares.columns; ++e) highest = std::max(highest, shares.at(t, e));
  const double mean = 1 / static_cast<double>(shares.columns), line = (highest + mean) / 2;
  Set set;
  for (int64_t e = 0; e < shares.columns; ++e)
    if (shares.at(t, e) > line) set.push_back(e);
  return set;
}

/// More than half of all members in common.
bool alike(const Set& a, const Set& b) {
  Set both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return 2 * both.size() > a.size() + b.size() - both.size();
}

}  // namespace

Rotation find_rotation(const Shares& shares, double assignments) {
  Rotation rotation;
  if (shares.columns < 3 || shares.rows < 8) return rotation;
  std::vector<Set> known;
  std::vector<Dwell> dwells;
  double excess = 0;
  for (int64_t t = 0; t < shares.rows; ++t) {
    const Set set = hot_set(shares, t);
    if (set.empty()) return rotation;  // a balanced row: nothing rotates
    for (int64_t e : set)
      excess += (shares.at(t, e) * static_cast<double>(shares.columns) - 1) /
                static_cast<double>(set.size());
    if (!dwells.empty() && alike(known[static_cast<size_t>(dwells.back().set)], set)) {
      ++dwells.back().rows;
      continue;
    }
    const auto match =
        std::find_if(known.begin(), known.end(), [&](const Set& k) { return alike(k, set); });
    if (match == known.end() && static_cast<int64_t>(known.size()) > shares.columns)
      return rotation;  // more sets than a rotation can have
    dwells.push_back({match - known.begin(), 1});
    if (match == known.end()) known.push_back(set);
  }
  rotation.excess = excess / static_cast<double>(shares.rows);
  rotation.moves = static_cast<int64_t>(dwells.size()) - 1;
  if (rotation.moves < 3 || known.size() < 3) return rotation;
  // The highest of E sampled loads lies some sqrt(2 ln E) deviations above the mean.
  const double by_chance = std::sqrt(2 * std::log(static_cast<double>(shares.columns)) *
                                     static_cast<double>(shares.columns) / assignments);
  if (rotation.excess < 0.2 + 1.5 * by_chance) return rotation;

  int64_t returns = 0;
  std::map<int64_t, std::map<int64_t, int64_t>> successors;
  for (size_t i = 1; i < dwells.size(); ++i) {
    returns += i >= 2 && dwells[i].set == dwells[i - 2].set;
    ++successors[dwells[i - 1].set][dwells[i].set];
  }
  int64_t usual = 0;
  for (const auto& [from, to] : successors) {
    int64_t most = 0;
    for (const auto& [set, times] : to) most = std::max(most, times);
    usual += most;
  }
  const auto share = [&](int64_t times) {
    return static_cast<double>(times) / static_cast<double>(rotation.moves);
  };
  double sum = 0, squares = 0;  // of the dwells between the first and the last, which are cut off
  const auto whole = static_cast<double>(dwells.size() - 2);
  for (size_t i = 1; i + 1 < dwells.size(); ++i) {
    const auto rows = static_cast<double>(dwells[i].rows);
    sum += rows;
    squares += rows * rows;
  }
  rotation.dwell_rows = sum / whole;
  const double spread =
      std::sqrt(std::max(0.0, squares / whole - rotation.dwell_rows * rotation.dwell_rows));
  rotation.found =
      share(returns) <= 0.1 && share(usual) >= 0.9 && spread <= 0.35 * rotation.dwell_rows;
  for (const Set& set : known) rotation.order.push_back(set.front());
  return rotation;
}

}  // namespace moetwin
