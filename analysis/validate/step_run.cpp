#include "analysis/validate/step_run.h"

#include <fmt/format.h>

#include <algorithm>
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
