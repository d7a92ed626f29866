#include "cli/machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "backends/cuda/cluster.h"
#include "backends/sim/cluster.h"
#include "backends/sim/representative/record.h"
#include "cli/gpu_verdicts.h"
#include "cli/shipped.h"
#include "core/base/error.h"
#include "core/ops/isa.h"
#include "core/scenario/rules.h"

namespace moetwin {

ClusterProfile machine_profile(const Scenario& scenario) {
  return read_cluster_profile(scenario.cluster.profile, shipped_directories(scenario, "clusters"));
}

namespace {

Json::Value gpus_json(const std::vector<RankGpu>& gpus) {
  Json::Value list(Json::arrayValue);
  for (const RankGpu& g : gpus) {
    Json::Value entry;
    entry["rank"] = Json::Int64(g.rank);
    entry["host"] = g.host;
    entry["name"] = g.name;
    entry["pci"] = g.pci;
    const auto add = [&entry](const char* name, double value) {
      if (value >= 0) entry[name] = value;
    };
    add("temperature_celsius", g.temperature_celsius);
    add("sm_clock_mhz", g.sm_clock_mhz);
    add("sm_clock_most_mhz", g.sm_clock_most_mhz);
    add("memory_clock_mhz", g.memory_clock_mhz);
    add("power_watts", g.power_watts);
    add("power_limit_watts", g.power_limit_watts);
    if (!g.slowed_by.empty()) entry["slowed_by"] = g.slowed_by;
    list.append(entry);
  }
  return list;
}

RunMachine real_machine(const Scenario& scenario,
                        const std::function<void(const std::string&)>& log) {
  const std::string warning =
      connections_warning(scenario, std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"));
  if (!warning.empty()) log(warning);
  CudaOptions options;
  options.clock = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  options.log = log;
  auto cluster = make_cuda_cluster(scenario, options);
  CudaCluster& cuda = *cluster;
  RunMachine machine;
  machine.cluster = std::move(cluster);
  machine.is_first = cuda.first_process();
  machine.local_ranks = static_cast<int64_t>(cuda.local_ranks().size());
  machine.post = [&cuda](const std::string& bytes) { cuda.post(bytes); };
  machine.on_post = [&cuda](std::function<void(const std::string&)> receive) {
    cuda.on_post(std::move(receive));
  };
  machine.environment = [&cuda] { return gpus_json(cuda.gpus()); };
  machine.gather = [&cuda](const std::string& mine) { return cuda.gather_bytes(mine); };
  machine.verdicts = [&cuda](const Report& report) {
    double uneven = 0;
    for (const LayerReport& layer : report.layers)
      uneven = std::max(uneven, layer.metrics.imbalance_ranks);
    return gpu_verdicts(cuda.gpus(), uneven);
  };
  return machine;
}

}  // namespace

bool RunMachine::any(bool mine) const {
  for (const std::string& theirs : gather(mine ? "1" : "0"))
    if (theirs == "1") return true;
  return false;
}

std::string connections_warning(const Scenario& scenario, const char* connections) {
  const CommOptimization& comm = scenario.distributed_config.comm_optimization;
  if (!connections || std::string(connections) != "1") return "";
  if (!comm.all_to_all_overlap && !comm.micro_batch_overlap) return "";
  return "warning: CUDA_DEVICE_MAX_CONNECTIONS is 1: all streams share one hardware queue, and "
         "distributed_config.comm_optimization." +
         std::string(comm.all_to_all_overlap ? "all_to_all_overlap" : "micro_batch_overlap") +
         " gains little; unset it, or set it to 8 or more";
}

namespace {

/// Ranks of it are not run but estimated.
class EstimatedCluster : public Cluster {
 public:
  explicit EstimatedCluster(const Scenario& scenario)
      : world_(scenario.distributed_config.world_size) {
    const ClusterProfile profile = machine_profile(scenario);
    device_ = representative_device(scenario, profile);
    description_ = representative_description(scenario, profile);
  }
  int64_t world() const override { return world_; }
  DeviceProperties device() const override { return device_; }
  std::string description() const override { return description_; }
  void run(const std::function<void(Backend&)>&) override {
    throw Error(ErrorClass::internal, "internal error: ranks of a representative run are not run");
  }

 private:
  int64_t world_;
  DeviceProperties device_;
  std::string description_;
};

RunMachine estimated_machine(const Scenario& scenario) {
  RunMachine machine;
  machine.cluster = std::make_unique<EstimatedCluster>(scenario);
  machine.local_ranks = scenario.distributed_config.world_size;
  machine.gather = [](const std::string& mine) { return std::vector<std::string>{mine}; };
  machine.estimate = [](const Scenario& s, const Grid& grid, const TrainerServices& services) {
    Estimator estimator(machine_profile(s),
                        [isa = best_isa()](const Op& op) { return reference_of(op, isa); });
    record_estimates(s, grid, estimator, *services.recorder, services.stop_after);
  };
  return machine;
}

/// Tells `within_first`, as simulated time passes, its share of what a step is estimated to take.
/// Null where there is no estimate.
std::function<void(double)> share_of_first_step(const Scenario& scenario,
                                                const std::function<void(double)>& within_first) {
  Scenario s = scenario;
  s.training_config.numerics = "none";
  s.memory.on_exceed = "report";
  double step = 0;
  try {
    Estimator estimator(machine_profile(s),
                        [isa = best_isa()](const Op& op) { return reference_of(op, isa); });
    step = estimator.estimate(s).step_seconds;
  } catch (const Error&) {  // a layout or routing that only a run knows
    return nullptr;
  }
  return [within_first, step](double now) { within_first(now / step); };
}

}  // namespace

std::string machine_platform(const Scenario& scenario) {
  Scenario s = scenario;
  s.cluster.fidelity = "fluid";
  SimOptions sim;
  sim.profile_directories = shipped_directories(s, "clusters");
  return make_sim_cluster(s, sim)->platform();
}

std::string flow_warning(const Scenario& scenario) {
  constexpr int64_t kRanks = 256;  // beyond: minutes to hours a step
  const int64_t world = scenario.distributed_config.world_size;
  if (scenario.cluster.fidelity != "flow" || world <= kRanks) return "";
  return fmt::format(
      "warning: cluster.fidelity flow simulates every message of {} ranks by itself: a step may "
      "take minutes to hours. fluid agrees with it within 4% and takes seconds",
      world);
}

RunMachine make_machine(const Scenario& scenario, const MachineOptions& options,
                        const std::function<void(const std::string&)>& log,
                        const std::function<void(double)>& within_first) {
  check_backend(scenario, options.backend);
  if (!options.chakra_directory.empty() &&
      (options.backend != "sim" || scenario.cluster.fidelity == "representative"))
    throw Error(ErrorClass::configuration,
                "--export-chakra: every rank's calls are known on the modelled cluster with "
                "cluster.fidelity fluid or flow only");
  if (options.backend == "cuda") return real_machine(scenario, log);
  if (scenario.cluster.fidelity == "representative") return estimated_machine(scenario);
  SimOptions sim;
  sim.chakra_directory = options.chakra_directory;
  sim.threads = options.threads > 0
                    ? options.threads
                    : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  sim.profile_directories = shipped_directories(scenario, "clusters");
  sim.references = [isa = best_isa()](const Op& op) { return reference_of(op, isa); };
  // Under fluid the host's calls are most of the work, and those it makes far ahead of the time.
  if (within_first && scenario.cluster.fidelity == "flow")
    sim.time_passes = share_of_first_step(scenario, within_first);
  if (const std::string warning = flow_warning(scenario); !warning.empty()) log(warning);
  RunMachine machine;
  auto cluster = make_sim_cluster(scenario, sim);
  machine.train = [&modelled = *cluster](const Scenario& s, const Grid& grid,
                                         const TrainerServices& services,
                                         const std::function<void()>& begun) {
    modelled.train(s, grid, services, begun);
  };
  machine.cluster = std::move(cluster);
  machine.local_ranks = scenario.distributed_config.world_size;
  machine.gather = [](const std::string& mine) { return std::vector<std::string>{mine}; };
  return machine;
}

}  // namespace moetwin
