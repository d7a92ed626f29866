// Rules of training, data, scripted routing, memory and output.
#include <fmt/format.h>

#include <algorithm>

#include "core/scenario/rule_list.h"
#include "core/scenario/sizes.h"

namespace moetwin {
namespace {

// The scripted source that decides the loads of a run, or "learned".
std::string effective_source(const Scenario& s) {
  if (s.routing.source == "learned" && s.training_config.numerics == "none")
    return s.routing.without_numerics;
  return s.routing.source;
}

std::string batch_fault(const Scenario& s, const Problems&) {
  const TrainingConfig& t = s.training_config;
  const int64_t ddp = parallel_sizes(s.distributed_config, 0).batch_ranks();
  const int64_t unit = ddp * t.micro_batch_size;
  if (t.global_batch_size % unit == 0) return "";
  std::string micro;
  if (t.global_batch_size % ddp == 0)
    micro = "; or micro_batch_size: " + divisors_text(t.global_batch_size / ddp);
  return fmt::format(
      "global_batch_size {} is not a multiple of dense data parallel size {} x micro_batch_size {} "
      "= {}; legal global_batch_size: {}, {}, {}, ...{}",
      t.global_batch_size, ddp, t.micro_batch_size, unit, unit, 2 * unit, 3 * unit, micro);
}

std::string report_fault(const Scenario& s, const Problems&) {
  if (s.memory.on_exceed != "report" || s.training_config.numerics == "none") return "";
  return "report needs training_config.numerics none: with real numbers a run cannot go on without "
         "memory; legal with numerics full: stop";
}

std::string by_op_fault(const Scenario& s, const Problems&) {
  const auto& modules = s.training_config.recompute_modules;
  if (s.training_config.recompute != "selective" ||
      std::find(modules.begin(), modules.end(), "alternate_products") == modules.end())
    return "";
  if (s.training_config.numerics != "none")
    return "alternate_products with training_config.numerics full; legal: numerics none, or "
           "attention_core, expert_activation";
  if (s.model_config.latent() || s.model_config.qk_norm ||
      s.model_config.moe_layer_config.num_experts > 0)
    return "alternate_products with experts, latent attention or qk_norm; legal: dense layers of "
           "plain attention, or attention_core, expert_activation";
  return "";
}

std::string vocab_fault(const Scenario& s, const Problems&) {
  if (s.data.format != "text" || s.model_config.vocab_size >= 256) return "";
  return fmt::format(
      "vocab_size {} with data.format text, which is read as bytes; legal: at least 256",
      s.model_config.vocab_size);
}

std::string port_fault(const Scenario& s, const Problems&) {
  const std::string& port = s.distributed_config.master_port;
  if (port == "env://") return "";
  const bool digits =
      !port.empty() && port.size() <= 5 &&
      std::all_of(port.begin(), port.end(), [](char c) { return '0' <= c && c <= '9'; });
  if (digits && std::stoi(port) >= 1 && std::stoi(port) <= 65535) return "";
  return fmt::format("master_port \"{}\"; legal: env://, or 1 to 65535", port);
}

std::string nccl_fault(const Scenario& s, const Problems&) {
  for (const auto& [name, value] : s.nccl)
    if (name.rfind("NCCL_", 0) != 0 || name.find('=') != std::string::npos)
      return fmt::format("\"{}\" is no variable of NCCL; legal: names that begin with NCCL_", name);
  return "";
}

std::string trace_fault(const Scenario& s, const Problems&) {
  const std::string source = effective_source(s);
  if (source == "proxy" && s.routing.scenario.empty())
    return "routing by proxy needs scenario: a smaller scenario, its run directory or routing.csv";
  if ((source != "trace" && source != "W10") || !s.routing.trace_file.empty()) return "";
  return fmt::format("routing by {} needs trace_file: a routing.csv of a run, or Megatron JSONL",
                     source);
}

std::string workload_fault(const Scenario& s, const Problems&) {
  const std::string source = effective_source(s);
  const WorkloadConfig& w = s.routing.workload;
  const int64_t experts = s.model_config.moe_layer_config.num_experts;
  const int64_t k = s.model_config.moe_layer_config.top_k;
  if (experts == 0) return "";
  const auto is = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* n) { return source == n; });
  };
  if (is({"W1", "W3", "W6", "W7"}) && w.hot_experts > experts)
    return fmt::format("{} with hot_experts {} of num_experts {}; legal hot_experts: 1 to {}",
                       source, w.hot_experts, experts, experts);
  if (is({"W2", "W11"}) && w.hot_rank >= s.distributed_config.expert_parallel_size)
    return fmt::format("{} with hot_rank {} of expert_parallel_size {}; legal hot_rank: 0 to {}",
                       source, w.hot_rank, s.distributed_config.expert_parallel_size,
                       s.distributed_config.expert_parallel_size - 1);
  if (is({"W5"}) && experts - w.zero_experts < k)
    return fmt::format(
        "W5 with zero_experts {} of num_experts {} leaves fewer than top_k {}; legal zero_experts: "
        "0 to {}",
        w.zero_experts, experts, k, experts - k);
  if (is({"W7"}) && w.burst_steps > w.period_steps)
    return fmt::format("W7 with burst_steps {} in period_steps {}; legal burst_steps: 0 to {}",
                       w.burst_steps, w.period_steps, w.period_steps);
  return "";
}

std::string fidelity_fault(const Scenario& s, const Problems&) {
  if (s.cluster.fidelity != "representative") return "";
  if (s.distributed_config.comm_optimization.micro_batch_overlap)
    return "representative does not compose pairs of micro-batches, but micro_batch_overlap is "
           "true; legal: fidelity fluid, flow, or micro_batch_overlap false";
  if (s.training_config.numerics == "none") return "";
  return fmt::format(
      "representative estimates time and memory of ranks that are not run, but "
      "training_config.numerics is {}; legal: numerics none, or fidelity fluid, flow",
      s.training_config.numerics);
}

std::string output_fault(const Scenario& s, const Problems&) {
  for (int64_t rank : s.output.routing_ranks)
    if (rank >= s.distributed_config.world_size)
      return fmt::format("rank {} of world_size {}; legal: 0 to {}", rank,
                         s.distributed_config.world_size, s.distributed_config.world_size - 1);
  return "";
}

std::string timeline_fault(const Scenario& s, const Problems&) {
  for (int64_t step : s.output.timeline_steps)
    if (step > s.training_config.steps)
      return fmt::format("step {} of {} steps; legal: 1 to {}", step, s.training_config.steps,
                         s.training_config.steps);
  return "";
}

std::string no_data(const Scenario& s, const Problems&) {
  if (s.training_config.numerics != "full" || s.data.format.starts_with("synthetic")) return "";
  if (!s.data.files.empty()) return "";
  return "no files given: a run needs them, or data.format synthetic, or training_config.numerics "
         "none";
}

std::string never_at_peak(const Scenario& s, const Problems&) {
  const TrainingConfig& t = s.training_config;
  if (t.schedule.warmup_steps < t.steps || t.schedule.warmup_steps == 0) return "";
  return fmt::format(
      "warmup_steps {} of {} steps: the learning rate reaches its peak at the end only",
      t.schedule.warmup_steps, t.steps);
}

std::string profile_fault(const Scenario& s, const Problems&) {
  const ProfileConfig& p = s.profile;
  const int64_t cycle = p.wait + p.warmup + p.active;
  if (p.active == 0 || cycle <= s.training_config.steps) return "";
  return fmt::format(
      "wait {} + warmup {} + active {} = {} steps, but training_config.steps is {}; legal: at most "
      "that many",
      p.wait, p.warmup, p.active, cycle, s.training_config.steps);
}

std::string no_measured_step(const Scenario& s, const Problems& problems) {
  const TrainingConfig& t = s.training_config;
  if (!problems.is_set(kTraining + "warmup_steps_excluded")) return "";
  if (t.warmup_steps_excluded < t.steps) return "";
  return fmt::format("warmup_steps_excluded {} of {} steps leaves no step to measure throughput on",
                     t.warmup_steps_excluded, t.steps);
}

}  // namespace

void add_run_rules(std::vector<Rule>& rules) {
  const std::string numerics = kTraining + "numerics";
  rules.push_back(
      {{kTraining + "global_batch_size", kTraining + "micro_batch_size", "distributed_config"},
       "global_batch_size is a multiple of dense data parallel size x micro_batch_size",
       false,
       batch_fault});
  rules.push_back({{kTraining + "recompute_modules", numerics},
                   "recompute by op is priced, not computed",
                   false,
                   by_op_fault});
  rules.push_back({{"memory.on_exceed", numerics},
                   "memory.on_exceed report needs numerics none",
                   false,
                   report_fault});
  rules.push_back({{kModel + "vocab_size", "data.format"},
                   "data.format text needs a vocab_size of at least 256",
                   false,
                   vocab_fault});
  rules.push_back(
      {{kDistributed + "master_port"}, "master_port is env:// or a port", false, port_fault});
  rules.push_back(
      {{"nccl"}, "nccl holds variables whose names begin with NCCL_", false, nccl_fault});
  rules.push_back({{"routing.source", "routing.trace_file", "routing.scenario",
                    "routing.without_numerics", numerics},
                   "routing by trace or W10 needs trace_file, by proxy scenario",
                   false,
                   trace_fault});
  rules.push_back({{"routing.workload", "routing.source", "routing.without_numerics", numerics,
                    kMoe + "num_experts", kMoe + "top_k", kDistributed + "expert_parallel_size"},
                   "a scripted load fits the experts and ranks there are",
                   false,
                   workload_fault});
  rules.push_back(
      {{"cluster.fidelity", numerics, kDistributed + "comm_optimization.micro_batch_overlap"},
       "a representative run has no numerics and no pairs of micro-batches",
       false,
       fidelity_fault});
  rules.push_back({{"output.routing_ranks", kDistributed + "world_size"},
                   "routing_ranks are ranks of the world",
                   false,
                   output_fault});
  rules.push_back({{"output.timeline_steps", kTraining + "steps"},
                   "timeline_steps are steps of the run",
                   false,
                   timeline_fault});
  rules.push_back({{"profile", kTraining + "steps"},
                   "a profile's wait + warmup + active steps are in the run",
                   false,
                   profile_fault});
  rules.push_back(
      {{"data.files", "data.format", numerics}, "training with numbers needs data", true, no_data});
  rules.push_back({{kTraining + "schedule", kTraining + "steps"},
                   "a warm-up as long as the training never reaches the peak",
                   true,
                   never_at_peak});
  rules.push_back({{kTraining + "warmup_steps_excluded", kTraining + "steps"},
                   "throughput needs a measured step",
                   true,
                   no_measured_step});
}

}  // namespace moetwin
