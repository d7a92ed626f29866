#include "analysis/validate/step_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/moe/routing_trace.h"
#include "core/record/recorder.h"
#include "core/scenario/sharding.h"
#include "core/scenario/sizes.h"
#include "core/train/train.h"

namespace moetwin {

Report run_steps(const Scenario& scenario, const MakeCluster& make) {
  const Grid grid(scenario.distributed_config, scenario.model_config.moe_layer_config.num_experts,
                  scenario.model_config.expert_width());
  const auto cluster = make(scenario);
  RunInfo info;
  info.backend = "sim";
  info.cluster = cluster->description();
  info.device = cluster->device();
  Recorder recorder(scenario, grid, info);
  TrainerServices services;
  services.recorder = &recorder;
  services.trace = load_trace(scenario);
  cluster->run([&](Backend& device) { train_rank(device, scenario, grid, services); });
  return recorder.finish({});
}

namespace {

int64_t micro_batches(const Scenario& s) {
  const int64_t ranks = parallel_sizes(s.distributed_config, 0).batch_ranks();
  return s.training_config.global_batch_size / (ranks * s.training_config.micro_batch_size);
}

}  // namespace

int64_t steady_micro_batches(const Scenario& scenario) {
  return std::max<int64_t>(2, scenario.distributed_config.pipeline_parallel_size);
}

Scenario with_micro_batches(Scenario s, int64_t count) {
  const int64_t have = micro_batches(s);
  if (have > count)
    s.training_config.global_batch_size = s.training_config.global_batch_size / have * count;
  return s;
}

namespace {

/// A size that a step's time is a straight line in: where it is run, and what each run counts for.
struct Axis {
  std::vector<int64_t> at;
  std::vector<double> weight;
  /// The wanted size itself where it is at most `second`, else the line through both.
  Axis(int64_t wanted, int64_t first, int64_t second) : at{wanted}, weight{1} {
    if (wanted <= second) return;
    const double part = static_cast<double>(wanted - first) / static_cast<double>(second - first);
    at = {first, second};
    weight = {1 - part, part};
  }
};

/// Layers of a stage of which all stages have equally many; 0: they have not.
int64_t layers_of_stage(const Scenario& s) {
  const DistributedConfig& d = s.distributed_config;
  const int64_t stages = d.pipeline_parallel_size * d.virtual_pipeline_size;
  const bool even = d.layers_per_stage.empty() && d.num_layers_in_first_pipeline_stage == 0 &&
                    d.num_layers_in_last_pipeline_stage == 0 &&
                    s.model_config.num_layers % stages == 0;
  return even ? s.model_config.num_layers / stages : 0;
}

Scenario with_layers(Scenario s, int64_t layers) {
  const DistributedConfig& d = s.distributed_config;
  if (layers > 0)
    s.model_config.num_layers = layers * d.pipeline_parallel_size * d.virtual_pipeline_size;
  return s;
}

}  // namespace

Prediction estimate(const Scenario& scenario, const MakeCluster& make, const Figure& figure,
                    bool grows_with_micro_batches) {
  if (make.estimates()) return figure(make.estimate(scenario).report);
  const int64_t stages = scenario.distributed_config.pipeline_parallel_size;
  const int64_t steady = steady_micro_batches(scenario);
  // Interleaved stages take whole pipelines' worths.
  const int64_t more = scenario.distributed_config.virtual_pipeline_size > 1 ? stages : 1;
  const Axis micro(grows_with_micro_batches ? micro_batches(scenario)
                                            : std::min(micro_batches(scenario), steady),
                   steady, steady + more);
  // Where parameters are gathered for each layer, the first ones wait for theirs.
  const int64_t first = sharding_of(scenario.distributed_config).shard == Shard::everything ? 4 : 2;
  const int64_t period = scenario.model_config.moe_layer_config.num_experts > 0
                             ? scenario.model_config.moe_layer_config.moe_every_k_layers
                             : 1;
  const Axis layers(layers_of_stage(scenario), first * period, (first + first / 2) * period);
  std::vector<Batch> batches;
  std::vector<double> weights;
  for (size_t i = 0; i < micro.at.size(); ++i)
    for (size_t j = 0; j < layers.at.size(); ++j) {
      const Scenario s = with_layers(with_micro_batches(scenario, micro.at[i]), layers.at[j]);
      weights.push_back(micro.weight[i] * layers.weight[j]);
      batches.push_back({{batches.size()}, [s, figure](const MakeCluster& make) {
                           return std::vector<Prediction>{figure(run_steps(s, make))};
                         }});
    }
  std::vector<Prediction> parts(batches.size());
  BatchOptions alone;
  alone.seconds = 1e9;  // the whole has its limit
  run_batches(batches, make, alone, [&](size_t i, const Prediction& p) { parts[i] = p; });
  Prediction whole{0, parts.back().note};
  if (parts.size() > 1 && !whole.note.empty()) whole.note += " (of the largest of the runs)";
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!std::isfinite(parts[i].value)) return parts[i];
    whole.value += weights[i] * parts[i].value;
  }
  return whole;
}

Prediction step_seconds(const Scenario& scenario, const MakeCluster& make) {
  return estimate(
      scenario, make,
      [](const Report& report) {
        return Prediction{report.step_seconds_median, parts_text(report)};
      },
      true);
}

std::string parts_text(const Report& report) {
  std::vector<std::pair<double, std::string>> parts;
  const double whole = report.parts.total();
  for (int i = 0; i < kParts; ++i) {
    const double share = report.parts.seconds[static_cast<size_t>(i)] / whole;
    if (share >= 0.01)
      parts.emplace_back(share,
                         fmt::format("{} {:.0f}%", part_name(static_cast<Part>(i)), 100 * share));
  }
  std::sort(parts.rbegin(), parts.rend());
  std::string text;
  for (const auto& [share, name] : parts) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace moetwin
