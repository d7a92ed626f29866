#include "backends/sim/representative/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backends/sim/cluster/machine.h"
#include "backends/sim/cost/framework.h"
#include "backends/sim/cost/roofline.h"
#include "backends/sim/representative/loads.h"
#include "core/base/error.h"
#include "core/base/units.h"
#include "core/moe/balance.h"
#include "core/moe/workload.h"
#include "core/scenario/sizes.h"
#include "core/scenario/stages.h"
#include "core/train/schedule.h"

namespace moetwin {

namespace {

/// The parts of a step one after the other, from which the record finds them again.
std::vector<Interval> in_a_row(const StepParts& parts, double start) {
  std::vector<Interval> intervals;
  double at = start;
  const auto add = [&](Activity activity, Phase phase, int32_t stream, double seconds,
                       const char* name, const char* group = "") {
    if (seconds <= 0) return;
    Interval interval;
    interval.start = at;
    interval.end = at += seconds;
    interval.activity = activity;
    interval.phase = phase;
    interval.stream = stream;
    interval.name = name;
    interval.group = group;
    interval.order = static_cast<int64_t>(intervals.size());
    intervals.push_back(interval);
  };
  add(Activity::compute, Phase::forward, 0, parts.forward, "forward (sum)");
  add(Activity::compute, Phase::backward, 0, parts.backward, "backward (sum)");
  add(Activity::compute, Phase::recompute, 0, parts.recompute, "recompute (sum)");
  add(Activity::compute, Phase::optimizer, 0, parts.optimizer, "optimizer (sum)");
  const double named = parts.forward + parts.backward + parts.recompute + parts.optimizer;
  add(Activity::compute, Phase::other, 0, parts[Part::compute] - named, "other compute (sum)");
  add(Activity::all_to_all, Phase::other, 1, parts[Part::all_to_all], "all_to_all (sum)");
  // What passes before an exchange between stages is a bubble.
  at += parts[Part::bubble];
  constexpr double kAny = 1e-12;
  add(Activity::other_communication, Phase::other, 1,
      std::max(parts[Part::other_communication], parts[Part::bubble] > 0 ? kAny : 0),
      "other communication (sum)", parts[Part::bubble] > 0 ? "pp" : "");
  add(Activity::offload, Phase::other, 1, parts[Part::offload], "copies (sum)");
  add(Activity::host, Phase::other, -1, parts[Part::host], "host (sum)");
  add(Activity::data, Phase::data, 0, parts[Part::data], "data (sum)");
  return intervals;
}

LayerStep layer_of(const Scenario& scenario, const Grid& grid, const RoutingTrace* trace,
                   const RoutingConfig& routing, int64_t step, int64_t layer, int64_t ddp,
                   int64_t micro_batches) {
  const MoeLayerConfig& moe = scenario.model_config.moe_layer_config;
  const int64_t tokens =
      scenario.training_config.micro_batch_size * local_sequence_length(scenario);
  LayerStep out;
  out.layer = layer;
  out.tokens = tokens * micro_batches;
  out.counts = scripted_counts(routing, static_cast<uint64_t>(scenario.training_config.seed), step,
                               layer, ddp, grid.ddp(), tokens, moe.top_k, moe.num_experts,
                               grid.expert_sharding(), trace);
  out.kept = out.counts;
  const int64_t capacity = expert_capacity(moe, tokens);
  if (capacity >= 0)
    for (int64_t& kept : out.kept) kept = std::min(kept, capacity);
  for (auto* counts : {&out.counts, &out.kept})
    for (int64_t& count : *counts) count *= micro_batches;
  return out;
}

void check_fits(const Scenario& scenario, const Estimate& estimate) {
  if (estimate.fits || scenario.memory.on_exceed == "report") return;
  const auto fullest = std::max_element(
      estimate.stages.begin(), estimate.stages.end(),
      [](const StageEstimate& a, const StageEstimate& b) { return a.peak_bytes < b.peak_bytes; });
  std::string classes;
  for (int c = 0; c < kMemoryClasses; ++c)
    if (const int64_t bytes = fullest->classes[static_cast<size_t>(c)]; bytes > 0)
      classes += fmt::format("{}{} {}", classes.empty() ? "" : ", ",
                             memory_class_name(static_cast<MemoryClass>(c)),
                             format_bytes(static_cast<double>(bytes)));
  throw Error(
      ErrorClass::capacity,
      fmt::format(
          "out of memory on pipeline stage {}: {} of {} are needed ({}; {} context, {} "
          "communicators); {} over. "
          "Use a smaller micro-batch, more expert parallelism or ZeRO, or "
          "memory.on_exceed: report",
          fullest - estimate.stages.begin(),
          format_bytes(static_cast<double>(estimate.device_bytes)),
          format_bytes(static_cast<double>(estimate.memory_bytes)), classes,
          format_bytes(static_cast<double>(estimate.context_bytes)),
          format_bytes(static_cast<double>(fullest->communicator_bytes)),
          format_bytes(static_cast<double>(estimate.device_bytes - estimate.memory_bytes))));
}

}  // namespace

DeviceProperties representative_device(const Scenario& scenario, const ClusterProfile& profile) {
  const DType dtype = parse_dtype(scenario.training_config.dtype);
  DeviceProperties p;
  p.name = profile.gpu.name + " (modelled)";
  p.context_bytes =
      static_cast<int64_t>(profile.gpu.context.value) +
      framework_costs(parse_kernels(scenario.cluster.kernels, scenario.cluster.attention).of)
          .memory_bytes;
  p.memory_bytes = static_cast<int64_t>(profile.gpu.memory.value) - p.context_bytes;
  p.world = scenario.distributed_config.world_size;
  p.gpus_per_node = profile.gpus_per_node;
  p.numerics = false;
  p.peak_flop_per_second = peak(profile.gpu, KernelKind::gemm, dtype).value;
  const auto source =
      profile.sources.find(std::string("gpu.matmul_flop_per_second.") + dtype_name(dtype));
  if (source != profile.sources.end()) p.peak_source = source->second;
  return p;
}

std::string representative_description(const Scenario& scenario, const ClusterProfile& profile) {
  const Machine machine(profile, scenario.distributed_config.world_size);
  return fmt::format(
      "{} x {} on {} node{} ({}), modelled: one rank of each pipeline stage, layers and "
      "micro-batches multiplied (representative)",
      machine.world(), profile.gpu.name, machine.nodes(), machine.nodes() == 1 ? "" : "s",
      profile.name);
}

void record_estimates(const Scenario& scenario, const Grid& grid, Estimator& estimator,
                      RunSink& recorder, const std::function<bool(int64_t)>& stop_after) {
  const TrainingConfig& training = scenario.training_config;
  const std::shared_ptr<const RoutingTrace> trace = load_trace(scenario);
  RoutingConfig routing = scenario.routing;
  routing.source = scripted_source(scenario);
  const int64_t micro_batches =
      training.global_batch_size / (grid.batch_ranks() * training.micro_batch_size);
  EstimateOptions options;
  options.traffic = true;
  Estimate estimate;
  double start = 0;
  for (int64_t step = 1; step <= training.steps; ++step) {
    options.step = step;
    const bool first_choice =
        by_interval(scenario.rebalancing) && step == scenario.rebalancing.interval_steps + 1;
    if (step == 1 || first_choice || varies_by_step(routing.source)) {
      estimate = estimator.estimate(scenario, options);
      check_fits(scenario, estimate);
    }
    for (int64_t rank = 0; rank < grid.world(); ++rank) {
      const Coordinates at = grid.coordinates(rank);
      const StageEstimate& stage = estimate.stages[static_cast<size_t>(at.pp)];
      RankStep out;
      out.rank = rank;
      out.step = step;
      out.start = start;
      out.end = start + estimate.step_seconds;
      if (at.tp == 0)
        for (const int64_t layer :
             moe_layers(scenario.model_config,
                        rank_layers(scenario.model_config, scenario.distributed_config, at.pp)))
          out.layers.push_back(
              layer_of(scenario, grid, trace.get(), routing, step, layer, at.ddp, micro_batches));
      out.profile.intervals = in_a_row(stage.parts, start);
      for (const Sent& sent : stage.sent)
        out.profile.traffic.push_back({sent.kind, sent.purpose, sent.group, sent.way, sent.members,
                                       std::llround(sent.calls), std::llround(sent.bytes),
                                       std::llround(sent.off_node), sent.seconds});
      out.memory.peak = out.memory.allocated = stage.peak_bytes;
      out.memory.bytes = out.memory.bytes_at_peak = stage.classes;
      out.memory.reserved = out.memory.peak_reserved = stage.peak_bytes;
      out.memory.host = estimate.host_bytes;
      out.memory.context = estimate.context_bytes;
      out.memory.communicators = stage.communicator_bytes;
      out.host_syncs = stage.host_syncs;
      out.learning_rate =
          training.learning_rate * training.dense.learning_rate_multiplier *
          schedule_factor(training.dense.schedule ? *training.dense.schedule : training.schedule,
                          step, training.steps);
      recorder.add(std::move(out));
    }
    start += estimate.step_seconds;
    if (step < training.steps && stop_after && stop_after(step)) break;
  }
}

}  // namespace moetwin
