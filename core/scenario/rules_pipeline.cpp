// Rules of the pipeline: which layers are where, and in what order micro-batches pass.
#include <fmt/format.h>

#include <numeric>

#include "core/scenario/rule_list.h"
#include "core/scenario/sizes.h"
#include "core/scenario/stages.h"

namespace moetwin {
namespace {

std::string list_fault(const ModelConfig& model, const DistributedConfig& d) {
  const auto& list = d.layers_per_stage;
  if (d.num_layers_in_first_pipeline_stage > 0 || d.num_layers_in_last_pipeline_stage > 0)
    return "layers_per_stage together with num_layers_in_first_pipeline_stage or "
           "num_layers_in_last_pipeline_stage; legal: one or the other";
  const int64_t stages = virtual_stages(d);
  if (static_cast<int64_t>(list.size()) != stages)
    return fmt::format(
        "layers_per_stage has {} numbers for pipeline_parallel_size {} x virtual_pipeline_size {} "
        "= {} stages; legal: {} numbers",
        list.size(), d.pipeline_parallel_size, d.virtual_pipeline_size, stages, stages);
  const int64_t sum = std::accumulate(list.begin(), list.end(), int64_t{0});
  if (sum == model.num_layers) return "";
  return fmt::format("layers_per_stage adds up to {}; legal: num_layers = {}", sum,
                     model.num_layers);
}

std::string stages_fault(const Scenario& s, const Problems&) {
  const ModelConfig& model = s.model_config;
  const DistributedConfig& d = s.distributed_config;
  if (!d.layers_per_stage.empty()) return list_fault(model, d);
  const int64_t stages = virtual_stages(d);
  const int64_t first = d.num_layers_in_first_pipeline_stage,
                last = d.num_layers_in_last_pipeline_stage;
  if (first == 0 && last == 0) {
    if (model.num_layers % stages == 0) return "";
    const bool chunks = d.virtual_pipeline_size > 1;
    return fmt::format(
        "num_layers {} does not divide over pipeline_parallel_size {}{} (rest {}); legal {}: {}; "
        "or layers_per_stage",
        model.num_layers, d.pipeline_parallel_size,
        chunks ? fmt::format(" x virtual_pipeline_size {}", d.virtual_pipeline_size) : "",
        model.num_layers % stages, chunks ? "products" : "pipeline_parallel_size",
        divisors_text(model.num_layers));
  }
  const int64_t others = stages - (first > 0) - (last > 0);
  const int64_t left = model.num_layers - first - last;
  if (left >= 0 && (others > 0 ? left % others == 0 : others == 0 && left == 0)) return "";
  return fmt::format(
      "num_layers {} less {} on the first and {} on the last of {} stages leaves {} for {} others; "
      "legal: a rest that they share equally, or layers_per_stage",
      model.num_layers, first, last, stages, left, others);
}

std::string schedule_fault(const Scenario& s, const Problems&) {
  const DistributedConfig& d = s.distributed_config;
  const bool interleaved = d.pipeline_schedule == "interleaved_1f1b";
  if (d.virtual_pipeline_size > 1 && !interleaved)
    return fmt::format(
        "virtual_pipeline_size {} with pipeline_schedule {}; legal: 1, or pipeline_schedule "
        "interleaved_1f1b",
        d.virtual_pipeline_size, d.pipeline_schedule);
  if (!interleaved) return "";
  if (d.pipeline_parallel_size == 1 || d.virtual_pipeline_size == 1)
    return fmt::format(
        "pipeline_schedule interleaved_1f1b with pipeline_parallel_size {} and "
        "virtual_pipeline_size {}; legal: both at least 2, or another schedule",
        d.pipeline_parallel_size, d.virtual_pipeline_size);
  const TrainingConfig& t = s.training_config;
  const int64_t unit = parallel_sizes(d, 0).batch_ranks() * t.micro_batch_size;
  if (t.global_batch_size % unit != 0) return "";  // another rule says so
  const int64_t micro_batches = t.global_batch_size / unit;
  if (micro_batches % d.pipeline_parallel_size == 0) return "";
  return fmt::format(
      "interleaved_1f1b runs micro-batches in groups of pipeline_parallel_size {}, and {} "
      "micro-batches a step are not a multiple; legal global_batch_size: {}, {}, {}, ...",
      d.pipeline_parallel_size, micro_batches, unit * d.pipeline_parallel_size,
      2 * unit * d.pipeline_parallel_size, 3 * unit * d.pipeline_parallel_size);
}

std::string paired_fault(const Scenario& s, const Problems&) {
  const DistributedConfig& d = s.distributed_config;
  if (!d.comm_optimization.micro_batch_overlap || d.pipeline_parallel_size == 1) return "";
  if (d.pipeline_schedule == "1f1b" || d.pipeline_schedule == "interleaved_1f1b") return "";
  return fmt::format(
      "micro_batch_overlap with pipeline_schedule {}, which has no pairs of a forward and a whole "
      "backward; legal: 1f1b, interleaved_1f1b",
      d.pipeline_schedule);
}

std::string idle_pairs(const Scenario& s, const Problems&) {
  const DistributedConfig& d = s.distributed_config;
  if (!d.comm_optimization.micro_batch_overlap) return "";
  const ParallelSizes sizes = parallel_sizes(d, s.model_config.moe_layer_config.num_experts);
  if (s.model_config.num_moe_layers() == 0 || sizes.ep * sizes.etp == 1)
    return "micro_batch_overlap without a token exchange: nothing to overlap";
  const int64_t unit = sizes.batch_ranks() * s.training_config.micro_batch_size;
  if (unit == 0 || s.training_config.global_batch_size != unit) return "";
  return "micro_batch_overlap with one micro-batch a step: there is no other to overlap with";
}

}  // namespace

void add_pipeline_rules(std::vector<Rule>& rules) {
  const std::string stages = kDistributed + "pipeline_parallel_size";
  const std::string chunks = kDistributed + "virtual_pipeline_size";
  rules.push_back({{stages, chunks, kDistributed + "layers_per_stage",
                    kDistributed + "num_layers_in_first_pipeline_stage",
                    kDistributed + "num_layers_in_last_pipeline_stage", kModel + "num_layers"},
                   "the layers are spread over the pipeline stages, equally unless said otherwise",
                   false,
                   stages_fault});
  rules.push_back(
      {{kDistributed + "pipeline_schedule", stages, chunks, kTraining + "global_batch_size",
        kTraining + "micro_batch_size", kDistributed + "zero_stage",
        kDistributed + "fsdp.sharding_strategy"},
       "interleaved_1f1b has virtual stages and whole groups of micro-batches; zb_h1 has "
       "whole gradients",
       false,
       schedule_fault});
  const std::string overlap = kDistributed + "comm_optimization.micro_batch_overlap";
  rules.push_back({{overlap, kDistributed + "pipeline_schedule", stages},
                   "micro_batch_overlap pairs forwards and backwards of 1F1B schedules",
                   false,
                   paired_fault});
  rules.push_back({{overlap, kDistributed + "expert_parallel_size", kMoe + "num_experts",
                    kTraining + "global_batch_size", kTraining + "micro_batch_size"},
                   "micro_batch_overlap needs a token exchange and a second micro-batch",
                   true,
                   idle_pairs});
}

}  // namespace moetwin
