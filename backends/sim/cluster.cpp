#include "backends/sim/cluster.h"

#include <fmt/format.h>

#include <filesystem>

#include "backends/sim/alike/shared_run.h"
#include "backends/sim/cluster/machine.h"
#include "backends/sim/cost/framework.h"
#include "backends/sim/export/chakra.h"
#include "backends/sim/export/platform_xml.h"
#include "backends/sim/runtime/platform_file.h"
#include "backends/sim/runtime/sim_backend.h"
#include "backends/sim/runtime/simulation.h"
#include "core/base/error.h"
#include "core/device/checked.h"
#include "core/train/train.h"

namespace moetwin {
namespace {

Fidelity parse_fidelity(const std::string& name) {
  if (name == "fluid") return Fidelity::fluid;
  if (name == "flow") return Fidelity::flow;
  throw Error(ErrorClass::configuration,
              fmt::format("cluster.fidelity \"{}\" cannot be run here; legal: fluid, flow{}", name,
                          name == "representative"
                              ? " (representative composes recorded runs: not in this version)"
                              : ""));
}

class SimCluster : public ModelledCluster {
 public:
  SimCluster(const Scenario& scenario, ClusterProfile profile, SimOptions options)
      : options_(std::move(options)),
        machine_(std::move(profile), scenario.distributed_config.world_size) {
    const ClusterProfile& p = machine_.profile();
    const int64_t world = machine_.world();
    require(world >= 1, "a world has ranks");
    const int64_t nodes = scenario.cluster.nodes;
    if (nodes > 0 && nodes * p.gpus_per_node < world)
      throw Error(
          ErrorClass::configuration,
          fmt::format("cluster.nodes: {} nodes of {} GPUs are {} GPUs, but "
                      "distributed_config.world_size is {}: {} nodes are needed",
                      nodes, p.gpus_per_node, nodes * p.gpus_per_node, world, machine_.nodes()));
    if (p.max_nodes > 0 && machine_.nodes() > p.max_nodes)
      throw Error(
          ErrorClass::configuration,
          fmt::format("cluster.profile \"{}\" has at most {} nodes of {} GPUs: {} GPUs, but "
                      "distributed_config.world_size is {}",
                      p.name, p.max_nodes, p.gpus_per_node, p.max_nodes * p.gpus_per_node, world));
    if (scenario.output.check_access && !options_.wrap) options_.wrap = checked;
    settings_.numerics = scenario.training_config.numerics == "full";
    settings_.memory_report = scenario.memory.on_exceed == "report";
    settings_.compute_dtype = parse_dtype(scenario.training_config.dtype);
    settings_.kernels = parse_kernels(scenario.cluster.kernels, scenario.cluster.attention);
    settings_.kernels.attention_dropout = scenario.model_config.dropout > 0;
    settings_.kernels.fp8_products = scenario.cluster.fp8_products;
    if (scenario.cluster.fp8_products && (settings_.numerics || p.gpu.fp8_peak.value <= 0))
      throw Error(
          ErrorClass::configuration,
          fmt::format(
              "cluster.fp8_products: {}",
              settings_.numerics
                  ? "only with training_config.numerics none: nothing is computed in FP8 here"
                  : fmt::format("cluster.profile \"{}\" has no "
                                "gpu.matmul_flop_per_second.fp8",
                                p.name)));
    settings_.choice = nccl_choice(scenario.cluster.collective_algorithm, scenario.nccl,
                                   copies_of_tokens(scenario));
    settings_.fidelity = parse_fidelity(scenario.cluster.fidelity);
    settings_.stages = scenario.distributed_config.pipeline_parallel_size;
    settings_.tensor_parallel = tensor_parallel_beside(scenario);
    settings_.copies_gathered = gathered_are_copied(scenario);
    settings_.stage_pass_seconds = scenario.cluster.stage_pass_seconds;
    settings_.blocking_wait = scenario.cluster.blocking_wait;
    if (settings_.fidelity == Fidelity::flow && machine_.loses_nics())
      throw Error(ErrorClass::configuration,
                  fmt::format("faults of cluster.profile \"{}\": flow keeps to the routes of a "
                              "machine whose NICs come back; use fluid, or give \"to_seconds\"",
                              p.name));
    constexpr int64_t kMostPaired = 512;  // a route for every pair
    if (settings_.fidelity == Fidelity::flow && machine_.fabric_links() > 0 && world > kMostPaired)
      throw Error(
          ErrorClass::configuration,
          fmt::format("cluster.fidelity: flow takes at most {} GPUs on a {} fabric that can "
                      "hold messages up, there are {}; use fluid",
                      kMostPaired, fabric_kind_name(p.fabric.kind), world));
    if (const auto& t = p.fabric.torus;
        p.fabric.kind == FabricKind::torus && machine_.nodes() > t[0] * t[1] * t[2])
      throw Error(
          ErrorClass::configuration,
          fmt::format("fabric.torus of profile \"{}\": {} x {} x {} nodes, but {} are needed",
                      p.name, t[0], t[1], t[2], machine_.nodes()));
  }

  int64_t world() const override { return machine_.world(); }

  DeviceProperties device() const override { return sim_properties(machine_, settings_, 0); }

  std::string description() const override {
    const ClusterProfile& p = machine_.profile();
    std::string text = fmt::format("{} x {} on {} node{} ({}), modelled: {}", machine_.world(),
                                   p.gpu.name, machine_.nodes(), machine_.nodes() == 1 ? "" : "s",
                                   p.name, Actors::description(settings_.fidelity));
    for (const Fault& fault : p.faults) text += "; fault: " + fault_text(fault);
    return text;
  }

  void run(const std::function<void(Backend&)>& program) override {
    Simulation(machine_, settings_, options_).run(program);
  }

  std::string platform() const override {
    return platform_xml(machine_,
                        FlopPerSecond(sim_properties(machine_, settings_, 0).peak_flop_per_second));
  }

  void train(const Scenario& scenario, const Grid& grid, const TrainerServices& services,
             const std::function<void()>& begun) override {
    const AlikeRanks alike(scenario, grid);
    const bool watched = services.checkpoints || services.resume || services.data ||
                         services.hooks.after_gradients || services.hooks.after_step;
    const bool shares = options_.share_programs && !options_.wrap && !watched;
    const std::string& traces = options_.chakra_directory;
    if (!traces.empty() && (!shares || settings_.numerics))
      throw Error(
          ErrorClass::configuration,
          "--export-chakra: traces are of a run with training_config.numerics none, without "
          "checkpoints and without output.check_access");
    if (!traces.empty() || (shares && alike.any())) {
      std::unique_ptr<ChakraExport> chakra;
      if (!traces.empty())
        chakra = std::make_unique<ChakraExport>(machine_, settings_.choice, grid, alike, traces,
                                                scenario.training_config.steps);
      Simulation simulation(machine_, settings_, options_);
      run_shared(simulation, scenario, grid, alike, services, begun,
                 [&](int64_t leader, const TapeSegment& segment) {
                   if (chakra) chakra->add(leader, segment);
                 });
      if (chakra) chakra->write();
      return;
    }
    run([&](Backend& device) {
      if (device.properties().rank == 0 && begun) begun();
      train_rank(device, scenario, grid, services);
    });
  }

 private:
  SimOptions options_;
  Machine machine_;
  Simulation::Settings settings_;
};

}  // namespace

std::unique_ptr<ModelledCluster> make_sim_cluster(const Scenario& scenario, ClusterProfile profile,
                                                  const SimOptions& options) {
  if (FabricProfile& fabric = profile.fabric; fabric.kind == FabricKind::platform) {
    const int64_t world = scenario.distributed_config.world_size;
    std::filesystem::path file = fabric.platform_file;  // beside the profile that names it
    if (file.is_relative() && !profile.path.empty())
      file = std::filesystem::path(profile.path).parent_path() / file;
    fabric.platform = read_platform_file(
        file.string(), (world + profile.gpus_per_node - 1) / profile.gpus_per_node);
  }
  return std::make_unique<SimCluster>(scenario, std::move(profile), options);
}

std::unique_ptr<ModelledCluster> make_sim_cluster(const Scenario& scenario,
                                                  const SimOptions& options) {
  std::vector<std::string> directories = options.profile_directories;
  if (!scenario.path.empty())
    directories.push_back(std::filesystem::path(scenario.path).parent_path().string());
  return make_sim_cluster(scenario, read_cluster_profile(scenario.cluster.profile, directories),
                          options);
}

}  // namespace moetwin
