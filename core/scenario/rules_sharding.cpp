// Rules of sharding, its mixed precision and offload.
#include <fmt/format.h>

#include "core/scenario/rule_list.h"
#include "core/scenario/sharding.h"

namespace moetwin {
namespace {

std::string stage_fault(const Scenario& s, const Problems& problems) {
  const DistributedConfig& d = s.distributed_config;
  if (d.fsdp.sharding_strategy == "auto" || !problems.is_set(kDistributed + "zero_stage"))
    return "";
  const Sharding& named = sharding_of(d);
  if (named.zero_stage == d.zero_stage) return "";
  // No stage of ZeRO, and 0 names none.
  if (named.zero_stage < 0 && d.zero_stage == 0) return "";
  return fmt::format(
      "sharding_strategy {} is {}, but zero_stage is {}; legal: one of the two alone", named.name,
      named.zero_stage < 0 ? std::string("no stage of ZeRO")
                           : fmt::format("zero_stage {}", named.zero_stage),
      d.zero_stage);
}

std::string offload_fault(const Scenario& s, const Problems&) {
  const DistributedConfig& d = s.distributed_config;
  if (!d.fsdp.cpu_offload || sharding_of(d).shard == Shard::everything) return "";
  return fmt::format(
      "cpu_offload with {}, which keeps whole parameters on every GPU; legal with "
      "cpu_offload: SHARD_GRAD_OP, FULL_SHARD, HYBRID_SHARD, _HYBRID_SHARD_ZERO2",
      sharding_of(d).name);
}

std::string param_dtype_fault(const Scenario& s, const Problems&) {
  const std::string& wanted = s.distributed_config.fsdp.mixed_precision.param_dtype;
  if (wanted == "auto" || wanted == s.training_config.dtype) return "";
  return fmt::format(
      "param_dtype {} with training_config.dtype {}, which is the type of parameters "
      "and activations too; legal: leave one of the two out",
      wanted, s.training_config.dtype);
}

std::string reduce_dtype_fault(const Scenario& s, const Problems&) {
  const DistributedConfig& d = s.distributed_config;
  const std::string& wanted = d.fsdp.mixed_precision.reduce_dtype;
  if (wanted == "auto") return "";
  if (s.training_config.dtype == "fp64")
    return fmt::format("reduce_dtype {} with training_config.dtype fp64; legal: leave it out",
                       wanted);
  if (wanted == "fp32" || sharding_of(d).shard == Shard::everything) return "";
  return fmt::format("reduce_dtype {} with {}, whose gradients are not sharded; legal: fp32",
                     wanted, sharding_of(d).name);
}

}  // namespace

void add_sharding_rules(std::vector<Rule>& rules) {
  const std::string fsdp = kDistributed + "fsdp.";
  const std::string strategy = fsdp + "sharding_strategy", stage = kDistributed + "zero_stage";
  rules.push_back({{strategy, stage},
                   "fsdp.sharding_strategy and zero_stage say the same",
                   false,
                   stage_fault});
  rules.push_back({{fsdp + "cpu_offload", strategy, stage},
                   "cpu_offload needs sharded parameters",
                   false,
                   offload_fault});
  rules.push_back({{fsdp + "mixed_precision.param_dtype", kTraining + "dtype"},
                   "param_dtype is the training's dtype",
                   false,
                   param_dtype_fault});
  rules.push_back({{fsdp + "mixed_precision.reduce_dtype", strategy, stage, kTraining + "dtype"},
                   "a narrow reduce_dtype needs sharded gradients",
                   false,
                   reduce_dtype_fault});
}

}  // namespace moetwin
