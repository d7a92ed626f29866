#include "core/nn/parameter.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace moetwin {

const char* parameter_kind_name(ParameterKind kind) {
  constexpr const char* kNames[] = {"dense", "embedding", "router", "expert"};
  return kNames[static_cast<int>(kind)];
}

GroupKind Parameter::reduction_group() const {
  require(data == AxisUse::summed, "copies of a parameter over data parallel saw other tokens");
  if (grid == GridKind::expert) {
    require(expert == AxisUse::sharded && tensor != AxisUse::summed,
            "parameters on the expert grid are sharded over EP and not summed over ETP");
    return GroupKind::expert_dp;
  }
  return tensor == AxisUse::summed ? GroupKind::stage : GroupKind::dense_dp;
}

int64_t Parameter::global_index(int64_t i) const {
  int64_t moved = 0;
  if (!experts.empty()) {
    // From where a consecutive one would be, on by whole experts.
    const auto n = static_cast<int64_t>(experts.size());
    const size_t axis = expert_axis();
    const int64_t extent = local[axis] / n, slot = i / (placed() / n);
    const int64_t stride = extent * global[2] * (axis == 0 ? global[1] : 1);
    moved = (experts[static_cast<size_t>(slot)] - offset[axis] / extent - slot) * stride;
  }
  int64_t c = i % local[2];
  const int64_t b = i / local[2] % local[1], a = i / (local[1] * local[2]);
  for (const ColumnRange& range : columns)
    if (range.local <= c && c < range.local + range.count) {
      c += range.global - range.local;
      break;
    }
  return ((a + offset[0]) * global[1] + b + offset[1]) * global[2] + c + offset[2] + moved;
}

Parameter& ParameterSet::add(Parameter parameter) {
  // FNV-1a of the global name: draws depend on the name alone, never on the order or the layout.
  uint32_t hash = 2166136261u;
  for (const char c : parameter.name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  parameter.init_stream = hash;
  require(streams_.insert(hash).second, "two parameters with one name, or with one random stream");
  parameters_.push_back(std::move(parameter));
  return parameters_.back();
}

}  // namespace moetwin
