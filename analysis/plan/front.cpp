#include "analysis/plan/front.h"

#include <algorithm>

namespace moetwin {

std::vector<PlanResult> pareto_front(const std::vector<PlanResult>& fitting, int64_t ample_bytes) {
  std::vector<PlanResult> front;
  for (const PlanResult& candidate : fitting) {
    const PlanFigures& c = candidate.figures;
    const bool beaten = std::any_of(fitting.begin(), fitting.end(), [&](const PlanResult& other) {
      const PlanFigures& o = other.figures;
      const int64_t mine = std::max(c.peak_bytes, ample_bytes),
                    its = std::max(o.peak_bytes, ample_bytes);
      const bool as_good = o.tokens_per_second >= c.tokens_per_second && its <= mine &&
                           o.dropped_share <= c.dropped_share;
      const bool better = o.tokens_per_second > c.tokens_per_second || its < mine ||
                          o.dropped_share < c.dropped_share;
      return as_good && better;
    });
    if (!beaten) front.push_back(candidate);
  }
  return front;
}

bool is_matched(const std::vector<PlanResult>& found, double tokens_per_second, double bytes,
                double dropped_share, int64_t ample_bytes) {
  const double most = std::max(bytes, static_cast<double>(ample_bytes));
  return std::any_of(found.begin(), found.end(), [&](const PlanResult& r) {
    const PlanFigures& f = r.figures;
    return f.tokens_per_second >= tokens_per_second && static_cast<double>(f.peak_bytes) <= most &&
           f.dropped_share <= dropped_share;
  });
}

}  // namespace moetwin
