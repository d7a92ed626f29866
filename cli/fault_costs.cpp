#include "cli/fault_costs.h"

#include <cstring>

#include "analysis/batch/processes.h"
#include "backends/sim/cluster.h"
#include "cli/machines.h"
#include "cli/shipped.h"
#include "core/base/error.h"
#include "core/ops/isa.h"
#include "core/record/recorder.h"

namespace moetwin {
namespace {

/// Seconds of all steps on this machine.
double run_on(const Scenario& scenario, ClusterProfile profile) {
  const Grid grid(scenario.distributed_config, scenario.model_config.moe_layer_config.num_experts,
                  scenario.model_config.expert_width());
  SimOptions sim;
  sim.references = [isa = best_isa()](const Op& op) { return reference_of(op, isa); };
  sim.profile_directories = shipped_directories(scenario, "clusters");
  const auto cluster = make_sim_cluster(scenario, std::move(profile), sim);
  RunInfo info;
  info.backend = "sim";
  info.device = cluster->device();
  Recorder recorder(scenario, grid, info);
  TrainerServices services;
  services.recorder = &recorder;
  services.trace = load_trace(scenario);
  cluster->train(scenario, grid, services, nullptr);
  return recorder.finish({}).device_seconds;
}

}  // namespace

std::optional<FaultCosts> without_faults(const Scenario& scenario, size_t most) {
  const ClusterProfile profile = machine_profile(scenario);
  const std::vector<Fault>& faults = profile.faults;
  if (faults.empty()) return std::nullopt;
  const size_t each = faults.size() > most || faults.size() == 1 ? 0 : faults.size();
  const auto results = run_in_processes(1 + each, [&](size_t job) {
    ClusterProfile other = profile;
    if (job == 0)
      other.faults.clear();
    else
      other.faults.erase(other.faults.begin() + static_cast<std::ptrdiff_t>(job) - 1);
    const double seconds = run_on(scenario, std::move(other));
    return std::string(reinterpret_cast<const char*>(&seconds), sizeof seconds);
  });
  FaultCosts costs;
  for (size_t job = 0; job < results.size(); ++job) {
    if (!results[job].ok) throw Error(results[job].error_class, results[job].error);
    double seconds = 0;
    std::memcpy(&seconds, results[job].bytes.data(), sizeof seconds);
    if (job == 0)
      costs.device_seconds_without = seconds;
    else
      costs.each.push_back({fault_text(faults[job - 1]), seconds});
  }
  if (faults.size() == 1)
    costs.each.push_back({fault_text(faults.front()), costs.device_seconds_without});
  costs.tokens = static_cast<double>(scenario.training_config.steps *
                                     scenario.training_config.global_batch_size *
                                     scenario.model_config.sequence_length);
  return costs;
}

FaultCosts against(FaultCosts without, double device_seconds) {
  for (FaultCosts::Each& each : without.each) each.seconds = device_seconds - each.seconds;
  return without;
}

}  // namespace moetwin
