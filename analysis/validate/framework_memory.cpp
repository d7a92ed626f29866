#include "analysis/validate/framework_memory.h"

namespace moetwin {
namespace {

/// DeepSpeed with ZeRO-1. fp16: gradients stay in 16 bit, and the step makes a fp32 copy of a
/// rank's share (FP16_Optimizer). bf16: they are summed up in fp32 beside those of the pass
/// (BF16_Optimizer).
double of_deepspeed(const Scenario& s, const StageMemory& stage) {
  const DistributedConfig& d = s.distributed_config;
  const double parameters = static_cast<double>(stage.gradients) / 4;
  const double shards =
      static_cast<double>(d.world_size / (d.tensor_parallel_size * d.pipeline_parallel_size));
  if (s.training_config.dtype != "fp16") return 2 * parameters;
  // Buckets of reductions and gathers: 5e8 elements each by default.
  constexpr double kBuckets = 2 * 5e8 * 2;
  return parameters * (-2 + 4 / shards) + kBuckets;
}

/// InternEvo: in the step gradients lie in 16 bit as they came (2) and flattened (2), and in fp32
/// (4), with weight, master and moments 22 bytes a parameter of the share. Fitted to every other
/// row of ME-IEVO over their shares, 12 to 24 GB beside.
double of_internevo(const StageMemory& stage) {
  constexpr double kBytes = 22;
  const double parameters = static_cast<double>(stage.optimizer) / 12;
  return kBytes * parameters - static_cast<double>(stage.states);
}

}  // namespace

double more_for_states(const PublishedRow& row, const Scenario& scenario,
                       const StageMemory& stage) {
  const bool sixteen_bit = scenario.training_config.dtype != "fp32";
  if (sixteen_bit && row.mentions("framework", "DeepSpeed") && row.mentions("sharding", "ZeRO-1"))
    return of_deepspeed(scenario, stage);
  if (sixteen_bit && row.mentions("framework", "InternEvo")) return of_internevo(stage);
  return 0;
}

}  // namespace moetwin
