#include "backends/sim/cost/corrections.h"

#include <cmath>
#include <iterator>

namespace moetwin {

namespace {
std::string key_of(const std::string& op, const std::string& group) { return op + " in " + group; }
}  // namespace

Corrections::Corrections(const std::vector<CorrectionEntry>& entries) {
  for (const CorrectionEntry& entry : entries)
    by_op_[key_of(entry.op, entry.group)][std::log1p(static_cast<double>(entry.bytes))] =
        entry.factor;
}

double Corrections::factor(const std::string& op, const std::string& group, double bytes) const {
  const auto found = by_op_.find(key_of(op, group));
  if (found == by_op_.end()) return 1;
  const std::map<double, double>& sizes = found->second;
  const double at = std::log1p(bytes);
  const auto above = sizes.lower_bound(at);
  if (above == sizes.begin()) return above->second;
  const auto below = std::prev(above);
  if (above == sizes.end()) return below->second;
  const double share = (at - below->first) / (above->first - below->first);
  return below->second + share * (above->second - below->second);
}

}  // namespace moetwin
