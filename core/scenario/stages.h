#pragma once
// Which layers of the model are on which pipeline stage.

#include <cstdint>
#include <vector>

#include "core/scenario/scenario.h"

namespace moetwin {

/// Layers [first, first + count) of the model.
struct LayerRange {
  int64_t first = 0, count = 0;
  int64_t end() const { return first + count; }
  bool operator==(const LayerRange&) const = default;
};

/// Stages a micro-batch passes: PP x virtual_pipeline_size. Stage g is chunk g / PP of the rank at
/// PP coordinate g % PP.
int64_t virtual_stages(const DistributedConfig& config);

/// The layers of every virtual stage, in the order data flows: `layers_per_stage` where given, else
/// those of the first and the last stage as given and the rest equally over the others. Of a
/// scenario whose rules hold.
std::vector<LayerRange> stage_layers(const ModelConfig& model, const DistributedConfig& config);

/// The layers of each chunk of the rank at PP coordinate `pp`, ascending.
std::vector<LayerRange> rank_layers(const ModelConfig& model, const DistributedConfig& config,
                                    int64_t pp);

/// Model numbers of the MoE layers in these ranges, ascending.
std::vector<int64_t> moe_layers(const ModelConfig& model, const std::vector<LayerRange>& ranges);

}  // namespace moetwin
