#include "core/record/merge_layers.h"

#include <numeric>

#include "core/base/error.h"

namespace moetwin {

void LayerMerge::add(const RankStep& step) {
  for (const auto& [layer, rows] : step.received) layers_[layer].received.push_back(rows);
  if (step.layers.empty()) return;
  const int64_t ep_group = grid_.group(GroupKind::ep, step.rank).base;
  const auto columns = static_cast<size_t>(grid_.expert_sharding());
  for (const LayerStep& layer : step.layers) {
    Sums& sums = layers_[layer.layer];
    LayerRow& row = sums.row;
    const size_t experts = layer.counts.size();
    row.layer = layer.layer;
    row.counts.resize(experts);
    row.kept.resize(experts);
    row.probability.resize(experts);
    require(layer.kept.empty() || layer.kept.size() == experts, "kept counts of every expert");
    require(experts % columns == 0, "experts of a layer spread over the columns");
    std::vector<int64_t>& loads = sums.columns[ep_group];
    loads.resize(columns);
    for (size_t e = 0; e < experts; ++e) {
      row.counts[e] += layer.counts[e];
      row.kept[e] += layer.kept.empty() ? layer.counts[e] : layer.kept[e];
      loads[e / (experts / columns)] += layer.counts[e];
    }
    sums.probabilities = sums.probabilities && layer.probability.size() == experts;
    if (sums.probabilities)
      for (size_t e = 0; e < experts; ++e) row.probability[e] += layer.probability[e];
    if (layer.probe) sums.probe.add(*layer.probe);
    row.tokens += layer.tokens;
    row.aux += layer.aux, row.z += layer.z, row.importance += layer.importance;
    row.load_variance += layer.load_variance;
  }
}

std::vector<LayerRow> LayerMerge::rows() const {
  std::vector<LayerRow> rows;
  for (const auto& [number, sums] : layers_) {
    LayerRow row = sums.row;
    std::vector<int64_t> rank_loads = sums.received;
    if (rank_loads.empty())
      for (const auto& [group, loads] : sums.columns)
        rank_loads.insert(rank_loads.end(), loads.begin(), loads.end());
    const int64_t kept = std::accumulate(row.kept.begin(), row.kept.end(), int64_t{0});
    row.metrics = routing_metrics(row.counts, kept, rank_loads);
    if (!sums.probabilities || row.tokens == 0) row.probability.clear();
    for (double& p : row.probability) p /= static_cast<double>(row.tokens);
    if (!sums.probe.empty()) row.probe = sums.probe.row();
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace moetwin
