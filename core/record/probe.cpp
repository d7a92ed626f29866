#include "core/record/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/record/step_row.h"

namespace moetwin {

void ProbeMerge::add(const ProbePart& part) {
  sum_.sequences.insert(sum_.sequences.end(), part.sequences.begin(), part.sequences.end());
  sum_.weighed += part.weighed;
  sum_.harmed += part.harmed;
  if (sum_.bias.empty()) sum_.bias = part.bias;
}

ProbeRow ProbeMerge::row() const {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  require(!empty(), "a probe has sequences");
  std::vector<const ProbeSequence*> order;
  for (const ProbeSequence& s : sum_.sequences) order.push_back(&s);
  std::sort(order.begin(), order.end(), [](const ProbeSequence* a, const ProbeSequence* b) {
    return a->sequence < b->sequence;
  });
  const size_t experts = order.front()->first.size();
  std::vector<int64_t> first(experts);
  int64_t tokens = 0, changed = 0;
  bool compared = true;
  double entropy = 0, variance = 0;
  for (const ProbeSequence* s : order) {
    require(s->first.size() == experts, "a layer keeps its number of experts");
    for (size_t e = 0; e < experts; ++e) first[e] += s->first[e];
    tokens += s->tokens;
    compared = compared && s->changed >= 0;
    changed += s->changed;
    entropy += s->entropy;
    variance += s->variance;
  }
  const auto n = static_cast<double>(tokens);
  ProbeRow row;
  for (int64_t count : first) row.share.push_back(static_cast<double>(count) / n);
  row.churn = compared ? static_cast<double>(changed) / n : kUnknown;
  row.router_entropy =
      experts > 1 ? entropy / n / std::log(static_cast<double>(experts)) : kUnknown;
  row.logit_std = std::sqrt(variance / n);
  row.harm = sum_.weighed > 0 ? static_cast<double>(sum_.harmed) / static_cast<double>(sum_.weighed)
                              : kUnknown;
  row.bias = sum_.bias;
  return row;
}

std::string probe_csv_header(int64_t experts, bool bias) {
  std::string line = "step,layer,churn,router_entropy,logit_std,harm";
  for (int64_t e = 0; e < experts; ++e) line += fmt::format(",share_{}", e);
  for (int64_t e = 0; bias && e < experts; ++e) line += fmt::format(",bias_{}", e);
  return line + "\n";
}

std::string probe_csv_line(int64_t step, int64_t layer, const ProbeRow& row) {
  std::string line = fmt::format("{},{}", step, layer);
  const auto add = [&](double value) {
    line += ",";
    if (std::isfinite(value)) line += shortest(value);
  };
  for (double value : {row.churn, row.router_entropy, row.logit_std, row.harm}) add(value);
  for (double value : row.share) add(value);
  for (double value : row.bias) add(value);
  return line + "\n";
}

}  // namespace moetwin
