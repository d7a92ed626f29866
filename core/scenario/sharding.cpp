#include "core/scenario/sharding.h"

#include <algorithm>

#include "core/base/error.h"

namespace moetwin {

const std::vector<Sharding>& sharding_strategies() {
  static const std::vector<Sharding> table{
      {"NO_SHARD", 0, Shard::nothing, false, false},
      {"SHARD_OPTIMIZER", 1, Shard::optimizer, false, false},
      {"SHARD_GRAD_OP", 2, Shard::everything, false, false},
      {"FULL_SHARD", 3, Shard::everything, true, false},
      {"HYBRID_SHARD", -1, Shard::everything, true, true},
      {"_HYBRID_SHARD_ZERO2", -1, Shard::everything, false, true},
  };
  return table;
}

std::vector<std::string> sharding_names() {
  std::vector<std::string> names{"auto"};
  for (const Sharding& s : sharding_strategies()) names.emplace_back(s.name);
  return names;
}

const Sharding& sharding_of(const DistributedConfig& config) {
  const auto& all = sharding_strategies();
  const std::string& name = config.fsdp.sharding_strategy;
  const auto found = std::find_if(all.begin(), all.end(), [&](const Sharding& s) {
    return name == "auto" ? s.zero_stage == config.zero_stage : name == s.name;
  });
  require(found != all.end(), "a sharding strategy of the table");
  return *found;
}

bool gathers_beside_forward(const Scenario& scenario) {
  return scenario.cluster.kernels == "megatron-core" &&
         sharding_of(scenario.distributed_config).shard == Shard::optimizer;
}

}  // namespace moetwin
