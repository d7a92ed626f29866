#include "core/scenario/stages.h"

namespace moetwin {

int64_t virtual_stages(const DistributedConfig& config) {
  return config.pipeline_parallel_size * config.virtual_pipeline_size;
}

std::vector<LayerRange> stage_layers(const ModelConfig& model, const DistributedConfig& config) {
  std::vector<int64_t> counts = config.layers_per_stage;
  if (counts.empty()) {
    const int64_t stages = virtual_stages(config);
    const int64_t first = config.num_layers_in_first_pipeline_stage;
    const int64_t last = config.num_layers_in_last_pipeline_stage;
    const int64_t others = stages - (first > 0) - (last > 0);
    const int64_t each = others > 0 ? (model.num_layers - first - last) / others : 0;
    counts.assign(static_cast<size_t>(stages), each);
    if (first > 0) counts.front() = first;
    if (last > 0) counts.back() = last;
  }
  std::vector<LayerRange> ranges;
  int64_t first = 0;
  for (const int64_t count : counts) {
    ranges.push_back({first, count});
    first += count;
  }
  return ranges;
}

std::vector<LayerRange> rank_layers(const ModelConfig& model, const DistributedConfig& config,
                                    int64_t pp) {
  const std::vector<LayerRange> all = stage_layers(model, config);
  std::vector<LayerRange> own;
  for (size_t g = static_cast<size_t>(pp); g < all.size();
       g += static_cast<size_t>(config.pipeline_parallel_size))
    own.push_back(all[g]);
  return own;
}

std::vector<int64_t> moe_layers(const ModelConfig& model, const std::vector<LayerRange>& ranges) {
  std::vector<int64_t> layers;
  for (const LayerRange& range : ranges)
    for (int64_t i = range.first; i < range.end(); ++i)
      if (model.is_moe_layer(i)) layers.push_back(i);
  return layers;
}

}  // namespace moetwin
