#include "analysis/validate/step_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/record/recorder.h"
#include "core/train/supported.h"
#include "core/train/train.h"

namespace moetwin {

Report run_steps(const Scenario& scenario, const MakeCluster& make) {
  check_supported(scenario);
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
  cluster->run([&](Backend& device) { train_rank(device, scenario, grid, services); });
  return recorder.finish({});
}

namespace {

int64_t micro_batches(const Scenario& s) {
  const DistributedConfig& d = s.distributed_config;
  const int64_t dp = d.world_size / (d.tensor_parallel_size * d.pipeline_parallel_size);
  return s.training_config.global_batch_size / (dp * s.training_config.micro_batch_size);
}

Prediction run_once(const Scenario& scenario, const MakeCluster& make) {
  const Report report = run_steps(scenario, make);
  return {report.step_seconds_median, parts_text(report)};
}

}  // namespace

int64_t steady_micro_batches(const Scenario& scenario) {
  const int64_t stages = scenario.distributed_config.pipeline_parallel_size;
  return stages == 1 ? 2 : 2 * stages;
}

Scenario with_micro_batches(Scenario s, int64_t count) {
  const int64_t have = micro_batches(s);
  if (have > count)
    s.training_config.global_batch_size = s.training_config.global_batch_size / have * count;
  return s;
}

Prediction step_seconds(const Scenario& scenario, const MakeCluster& make) {
  const int64_t stages = scenario.distributed_config.pipeline_parallel_size;
  const int64_t have = micro_batches(scenario);
  const int64_t fewer = steady_micro_batches(scenario), more = fewer + stages;
  if (have <= more) return run_once(scenario, make);
  std::vector<Batch> batches;
  for (const int64_t count : {fewer, more})
    batches.push_back(
        {{batches.size()}, [s = with_micro_batches(scenario, count)](const MakeCluster& make) {
           return std::vector<Prediction>{run_once(s, make)};
         }});
  std::vector<Prediction> both(2);
  BatchOptions alone;
  alone.seconds = 1e9;  // the whole batch has its limit
  run_batches(batches, make, alone, [&](size_t i, const Prediction& p) { both[i] = p; });
  for (const Prediction& p : both)
    if (!std::isfinite(p.value)) return p;
  const double each = (both[1].value - both[0].value) / static_cast<double>(stages);
  both[1].value += each * static_cast<double>(have - more);
  both[1].note += fmt::format(" of {} of {} micro-batches", more, have);
  return both[1];
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
