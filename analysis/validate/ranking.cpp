#include "analysis/validate/ranking.h"

#include <algorithm>
#include <map>
#include <string>

namespace moetwin {

Ranking rank_pairs(const std::vector<RowResult>& rows, double difference) {
  std::map<std::string, std::vector<const RowResult*>> groups;
  for (const RowResult& row : rows)
    if (row.standing == RowStanding::scored && !row.alternative_of.empty())
      groups[row.alternative_of].push_back(&row);
  Ranking ranking;
  for (const auto& [name, members] : groups)
    for (size_t i = 0; i < members.size(); ++i)
      for (size_t j = i + 1; j < members.size(); ++j) {
        const RowResult &a = *members[i], &b = *members[j];
        if (a.layout == b.layout) continue;  // the same again, or another library
        const double low = std::min(a.measured, b.measured);
        if (std::max(a.measured, b.measured) <= low * (1 + difference)) continue;
        ++ranking.pairs;
        if ((a.measured < b.measured) == (a.predicted < b.predicted)) ++ranking.right;
      }
  return ranking;
}

}  // namespace moetwin
