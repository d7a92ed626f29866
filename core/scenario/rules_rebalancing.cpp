// Rules of rebalancing: with which layouts it goes.
#include <fmt/format.h>

#include "core/scenario/rule_list.h"
#include "core/scenario/sharding.h"

namespace moetwin {
namespace {

std::string group_fault(const Scenario& s, const Problems&) {
  const int64_t ep = s.distributed_config.expert_parallel_size;
  const int64_t experts = s.model_config.moe_layer_config.num_experts;
  if (s.rebalancing.kind == "none" || (ep >= 2 && ep <= experts)) return "";
  return fmt::format(
      "{} moves tokens between the ranks of an EP group, each of which has whole experts, but "
      "expert_parallel_size is {} and num_experts {}; legal expert_parallel_size: divisors of "
      "num_experts from 2 on",
      s.rebalancing.kind, ep, experts);
}

std::string split_fault(const Scenario& s, const Problems&) {
  const DistributedConfig& d = s.distributed_config;
  const int64_t etp =
      d.expert_tensor_parallel_size ? d.expert_tensor_parallel_size : d.tensor_parallel_size;
  if (s.rebalancing.kind == "none" || etp == 1) return "";
  return fmt::format(
      "{} sends experts from rank to rank whole, but expert_tensor_parallel_size is {}; legal with "
      "rebalancing: expert_tensor_parallel_size 1 (with tensor_parallel_size above 1 too)",
      s.rebalancing.kind, etp);
}

std::string sharded_fault(const Scenario& s, const Problems&) {
  const DistributedConfig& d = s.distributed_config;
  if (s.rebalancing.kind == "placement" && sharding_of(d).shard != Shard::nothing)
    return fmt::format(
        "placement moves an expert with its optimizer state, but with {} no rank has that whole; "
        "legal with placement: NO_SHARD, or zero_stage 0 (with the other kinds zero_stage 1 too)",
        sharding_of(d).name);
  if (s.rebalancing.kind == "none" || sharding_of(d).shard != Shard::everything) return "";
  return fmt::format(
      "{} takes an expert's weights from the rank that has them, but with {} no rank has them "
      "whole; "
      "legal with rebalancing: NO_SHARD, or zero_stage 0 and 1",
      s.rebalancing.kind, sharding_of(d).name);
}

std::string rebalancing_schedule_fault(const Scenario& s, const Problems&) {
  const DistributedConfig& d = s.distributed_config;
  if (s.rebalancing.kind == "none") return "";
  if (d.pipeline_schedule == "zb_h1" && d.pipeline_parallel_size > 1)
    return fmt::format(
        "{} returns gradients of experts when a layer's backward ends, but zb_h1 computes them "
        "later; legal with rebalancing: gpipe, 1f1b, interleaved_1f1b",
        s.rebalancing.kind);
  if (d.comm_optimization.micro_batch_overlap)
    return fmt::format(
        "{} with micro_batch_overlap, where another micro-batch uses the streams meanwhile; legal "
        "with rebalancing: micro_batch_overlap false (all_to_all_overlap true)",
        s.rebalancing.kind);
  return "";
}

std::string replicas_fault(const Scenario& s, const Problems&) {
  const int64_t n = s.rebalancing.redundant_experts;
  const int64_t ep = s.distributed_config.expert_parallel_size;
  const int64_t experts = s.model_config.moe_layer_config.num_experts;
  if (s.rebalancing.kind != "replication" || ep < 2 || ep > experts) return "";
  // A rank cannot have replicas of its own experts.
  const int64_t most = (experts - experts / ep) * ep;
  if (n > 0 && n % ep == 0 && n <= most) return "";
  return fmt::format(
      "redundant_experts {} for expert_parallel_size {}: each rank has equally many replicas, of "
      "experts that are not its own; legal: multiples of {} from {} to {}",
      n, ep, ep, ep, most);
}

std::string idle_replicas(const Scenario& s, const Problems& problems) {
  if (s.rebalancing.kind == "replication" || !problems.is_set("rebalancing.redundant_experts") ||
      s.rebalancing.redundant_experts == 0)
    return "";
  return fmt::format("redundant_experts {} with kind {} makes no replica; legal kind: replication",
                     s.rebalancing.redundant_experts, s.rebalancing.kind);
}

}  // namespace

void add_rebalancing_rules(std::vector<Rule>& rules) {
  const std::string kind = "rebalancing.kind", experts = kMoe + "num_experts";
  const std::string ep = kDistributed + "expert_parallel_size";
  rules.push_back({{kind, ep, experts},
                   "rebalancing needs whole experts on several ranks",
                   false,
                   group_fault});
  rules.push_back(
      {{kind, kDistributed + "expert_tensor_parallel_size", kDistributed + "tensor_parallel_size"},
       "rebalancing needs experts that no rank has a slice of",
       false,
       split_fault});
  rules.push_back({{kind, kDistributed + "fsdp.sharding_strategy", kDistributed + "zero_stage"},
                   "rebalancing needs parameters that are not sharded over copies",
                   false,
                   sharded_fault});
  rules.push_back({{kind, kDistributed + "pipeline_schedule",
                    kDistributed + "comm_optimization.micro_batch_overlap",
                    kDistributed + "pipeline_parallel_size"},
                   "rebalancing needs whole backwards, one micro-batch after the other",
                   false,
                   rebalancing_schedule_fault});
  rules.push_back({{"rebalancing.redundant_experts", kind, ep, experts},
                   "replicas are shared out equally over the ranks of an EP group",
                   false,
                   replicas_fault});
  rules.push_back({{"rebalancing.redundant_experts", kind},
                   "redundant experts are replicas",
                   true,
                   idle_replicas});
}

}  // namespace moetwin
