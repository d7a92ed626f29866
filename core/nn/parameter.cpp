#include "core/nn/parameter.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace moetwin {

const char* parameter_kind_name(ParameterKind kind) {
  constexpr const char* kNames[] = {"dense", "embedding", "router", "expert"};
  return kNames[static_cast<int>(kind)];
}

GroupKind Parameter::reduction_group() const {
  // Tensor parallelism comes with a later part; a parameter that needs a sum over it must not pass
  // in silence.
  require(tensor != AxisUse::summed, "gradients summed over the tensor axis are not built yet");
  if (grid == GridKind::expert) {
    require(expert == AxisUse::sharded, "parameters on the expert grid are sharded over EP");
    return data == AxisUse::summed ? GroupKind::expert_dp : GroupKind::world;
  }
  return GroupKind::dense_dp;
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
