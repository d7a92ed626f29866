#pragma once
// Series made by a formula, for the analyses to look at.

#include <cmath>
#include <cstdint>
#include <vector>

#include "analysis/result/routing_series.h"
#include "core/base/philox.h"

namespace moetwin::test {

/// Appends one step of training loads.
inline void add_step(LayerSeries& layer, int64_t step, const std::vector<int64_t>& counts) {
  layer.experts = static_cast<int64_t>(counts.size());
  layer.steps.push_back(step);
  double sum = 0;
  for (int64_t n : counts) {
    layer.load.push_back(static_cast<double>(n));
    sum += static_cast<double>(n);
  }
  layer.kept.push_back(sum);
}

/// Appends one probe; the shares must sum to 1.
inline void add_probe(LayerSeries& layer, int64_t step, double churn,
                      const std::vector<double>& shares) {
  layer.experts = static_cast<int64_t>(shares.size());
  ProbeSeries& probe = layer.probe;
  probe.steps.push_back(step);
  probe.churn.push_back(churn);
  probe.share.insert(probe.share.end(), shares.begin(), shares.end());
  for (auto* unknown : {&probe.router_entropy, &probe.logit_std, &probe.harm})
    unknown->push_back(std::nan(""));
}

/// `draws` independent draws from `shares`.
inline std::vector<int64_t> multinomial(const std::vector<double>& shares, int64_t draws,
                                        uint64_t seed, int64_t step) {
  std::vector<int64_t> counts(shares.size());
  const PhiloxKey key = philox_key(seed, Purpose::workload, 0, static_cast<uint32_t>(step));
  for (int64_t i = 0; i < draws; ++i) {
    double u = philox_uniform(key, static_cast<uint64_t>(i));
    size_t e = 0;
    while (e + 1 < shares.size() && u >= shares[e]) u -= shares[e++];
    ++counts[e];
  }
  return counts;
}

}  // namespace moetwin::test
