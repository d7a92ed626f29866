#include "cli/gpu_verdicts.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetwin {
namespace {

/// Degrees above the median of the others that are more than the place in the rack explains.
constexpr int kMuchWarmer = 12;
/// GPUs that are needed to tell one from the others.
constexpr size_t kEnough = 4;
/// Load of a rank over the mean from which routing explains heat.
constexpr double kUneven = 1.2;

std::string name_of(const RankGpu& g) {
  return fmt::format("rank {}'s {} (host {}, {})", g.rank, g.name, g.host, g.pci);
}

std::string clocks_of(const RankGpu& g) {
  std::string text;
  if (g.temperature_celsius >= 0) text += fmt::format(", {} C", g.temperature_celsius);
  if (g.sm_clock_mhz >= 0 && g.sm_clock_most_mhz >= 0)
    text += fmt::format(", {} of {} MHz", g.sm_clock_mhz, g.sm_clock_most_mhz);
  if (g.power_watts >= 0 && g.power_limit_watts >= 0)
    text += fmt::format(", {:.0f} of {:.0f} W", g.power_watts, g.power_limit_watts);
  return text;
}

Verdict slowed(const RankGpu& g) {
  Verdict v;
  v.kind = "gpu_slowed";
  v.evidence = fmt::format("{} was held back by: {}{}", name_of(g), g.slowed_by, clocks_of(g));
  v.advice =
      g.slowed_by.find("thermal") != std::string::npos
          ? "look at its cooling and the air that reaches it; every step waits for the slowest GPU"
          : "raise its power limit where the machine allows it (nvidia-smi -pl), or expect this "
            "rate: every step waits for the slowest GPU";
  return v;
}

Verdict hot(const RankGpu& g, int median, double imbalance_ranks) {
  Verdict v;
  v.kind = "gpu_hot";
  v.evidence = fmt::format("{} is at {} C, the median of the others is {} C", name_of(g),
                           g.temperature_celsius, median);
  if (imbalance_ranks >= kUneven) {
    v.evidence +=
        fmt::format("; a rank's experts get up to {:.2f} times the mean load", imbalance_ranks);
    v.advice =
        "even out the experts: raise moe_layer_config.aux_loss_factor or set bias_update_rate, or "
        "bound an expert's load with capacity_factor; if the load is even and it stays hot, look "
        "at its cooling";
  } else {
    v.advice = "look at its cooling: the load of the ranks does not explain it";
  }
  return v;
}

}  // namespace

std::vector<Verdict> gpu_verdicts(const std::vector<RankGpu>& gpus, double imbalance_ranks) {
  std::vector<Verdict> verdicts;
  for (const RankGpu& g : gpus)
    if (!g.slowed_by.empty()) verdicts.push_back(slowed(g));
  const auto hottest =
      std::max_element(gpus.begin(), gpus.end(), [](const RankGpu& a, const RankGpu& b) {
        return a.temperature_celsius < b.temperature_celsius;
      });
  std::vector<int> others;
  for (const RankGpu& g : gpus)
    if (&g != &*hottest && g.temperature_celsius >= 0) others.push_back(g.temperature_celsius);
  if (others.size() + 1 < kEnough) return verdicts;
  std::nth_element(others.begin(), others.begin() + others.size() / 2, others.end());
  const int median = others[others.size() / 2];
  if (hottest->temperature_celsius >= median + kMuchWarmer)
    verdicts.push_back(hot(*hottest, median, imbalance_ranks));
  return verdicts;
}

}  // namespace moetwin
