#include "backends/cuda/job/launch.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "core/base/error.h"

namespace moetwin {
namespace {

constexpr int kDefaultPort = 29500;
constexpr int kPortsAfterTorchrun = 16;

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorClass::configuration, message);
}

int64_t number(const std::string& name, const std::string& text, int64_t least, int64_t most) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < least || value > most)
    refuse(fmt::format("{}={} is not an integer from {} to {}", name, text, least, most));
  return value;
}

/// How one launcher says which rank a process is.
struct Style {
  const char* name;
  const char* rank;
  const char* world;
  const char* local_rank;
  const char* local_world;
  const char* how;  ///< how to start N processes
};
constexpr Style kStyles[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     "torchrun --no-python --nnodes <nodes> --nproc-per-node <GPUs per node>"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "mpirun -np <GPUs>"},
    {"MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE", "mpirun -np <GPUs>"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr,
     "srun --ntasks-per-node <GPUs per node>"},
    {"MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
     "mpirun -np <GPUs>"},
};

class Finder {
 public:
  Finder(const Environment& environment, const Scenario& scenario)
      : environment_(environment), scenario_(scenario) {}

  Launch find() {
    const Style* style = choose();
    if (!style) {
      launch_.launcher = "no launcher";
      launch_.all_ranks_here = true;
      launch_.world = launch_.local_world = scenario_.distributed_config.world_size;
      return launch_;
    }
    launch_.launcher = style->name;
    if (style == &kStyles[0] && !environment_("TORCHELASTIC_RUN_ID"))
      launch_.launcher = environment_("CROSS_RANK") ? "deepspeed" : "RANK and WORLD_SIZE";
    launch_.world = read(*style, style->world, 1, int64_t{1} << 20);
    compare_world(*style);
    launch_.rank = read(*style, style->rank, 0, launch_.world - 1);
    launch_.local_rank = read(*style, style->local_rank, 0, int64_t{1} << 20);
    launch_.local_world = launch_.local_rank + 1;
    if (style->local_world && environment_(style->local_world))
      launch_.local_world = read(*style, style->local_world, 1, launch_.world);
    else if (environment_("LOCAL_SIZE"))  // DeepSpeed's launcher
      launch_.local_world = read(*style, "LOCAL_SIZE", 1, launch_.world);
    find_address();
    find_port();
    return launch_;
  }

 private:
  // The first style whose variables are there. A launcher may itself have been started by another
  // (torchrun by srun), whose variables its processes inherit: only variables set by hand can
  // contradict.
  const Style* choose() {
    const Style* chosen = nullptr;
    for (const Style& style : kStyles) {
      if (!environment_(style.rank)) continue;
      const bool slurm = style.rank == std::string("SLURM_PROCID");
      // Slurm sets SLURM_PROCID in the batch script too: only in a step did srun start us.
      if (slurm && (!environment_("SLURM_STEP_ID") || !environment_(style.world))) continue;
      if (!chosen) {
        chosen = &style;
        if (environment_("TORCHELASTIC_RUN_ID")) break;
      } else if (chosen == &kStyles[0] && !slurm &&
                 environment_(style.rank) != environment_(chosen->rank)) {
        refuse(
            fmt::format("two launchers contradict each other: {}={} but {}={} ({}). Unset {} and "
                        "{} before mpirun",
                        chosen->rank, *environment_(chosen->rank), style.rank,
                        *environment_(style.rank), style.name, chosen->rank, chosen->world));
      }
    }
    if (!chosen)
      for (const char* name : {"WORLD_SIZE", "LOCAL_RANK"})
        if (const auto value = environment_(name))
          refuse(
              fmt::format("environment variable {}={} is set but RANK is not. Start with a "
                          "launcher that sets RANK, WORLD_SIZE and LOCAL_RANK, or unset {} to "
                          "run all ranks in one process",
                          name, *value, name));
    return chosen;
  }

  int64_t read(const Style& style, const char* name, int64_t least, int64_t most) {
    const auto text = environment_(name);
    if (text) return number(name, *text, least, most);
    refuse(fmt::format(
        "environment variable {} is missing although {} is set ({}). Start with "
        "{}, which sets both, or set it by hand{}",
        name, style.rank, launch_.launcher, style.how,
        name == style.local_rank ? ": the index of this process's GPU on its node" : ""));
  }

  void compare_world(const Style& style) {
    const DistributedConfig& d = scenario_.distributed_config;
    if (launch_.world == d.world_size) return;
    const int64_t other =
        d.expert_parallel_size * d.tensor_parallel_size * d.pipeline_parallel_size;
    const std::string change =
        launch_.world % other == 0
            ? fmt::format(
                  "add --set distributed_config.world_size={} --set "
                  "distributed_config.data_parallel_size={}",
                  launch_.world, launch_.world / other)
            : fmt::format(
                  "change the scenario: its expert x tensor x pipeline parallel size {} "
                  "does not divide {}",
                  other, launch_.world);
    refuse(
        fmt::format("{} started {} process{} ({}={}) but distributed_config.world_size is {}. "
                    "Start {} ({}), or {}",
                    launch_.launcher, launch_.world, launch_.world == 1 ? "" : "es", style.world,
                    launch_.world, d.world_size, d.world_size, style.how, change));
  }

  void find_address() {
    const std::string& wanted = scenario_.distributed_config.master_addr;
    if (wanted != "env://") {
      launch_.address = wanted;
    } else if (const auto address = environment_("MASTER_ADDR")) {
      launch_.address = *address;
    } else if (const auto nodes = slurm_nodes()) {
      launch_.address = first_slurm_host(*nodes);
    } else if (launch_.local_world == launch_.world) {
      launch_.address = "127.0.0.1";
    } else {
      refuse(
          fmt::format("environment variable MASTER_ADDR is missing ({}, {} ranks on more than one "
                      "node): set it "
                      "on every rank to a name or address of the node with rank 0, as in mpirun -x "
                      "MASTER_ADDR=<host>, or set distributed_config.master_addr",
                      launch_.launcher, launch_.world));
    }
    const bool loopback = launch_.address == "localhost" || launch_.address.rfind("127.", 0) == 0 ||
                          launch_.address == "::1";
    const bool knows_nodes = launch_.local_world > launch_.local_rank + 1 || launch_.local_rank > 0;
    if (loopback && knows_nodes && launch_.rank != launch_.local_rank)
      refuse(
          fmt::format("the address of rank 0 is {} (MASTER_ADDR or "
                      "distributed_config.master_addr), which is this node itself, but rank {} "
                      "is local rank {}: rank 0 is on another node. Use the name of that node",
                      launch_.address, launch_.rank, launch_.local_rank));
  }

  std::optional<std::string> slurm_nodes() {
    if (!environment_("SLURM_STEP_ID")) return std::nullopt;
    if (const auto nodes = environment_("SLURM_STEP_NODELIST")) return nodes;
    return environment_("SLURM_JOB_NODELIST");
  }

  void find_port() {
    const std::string& wanted = scenario_.distributed_config.master_port;
    const auto slurm_job = environment_("SLURM_JOB_ID");
    if (wanted != "env://") {
      launch_.port = static_cast<int>(number("distributed_config.master_port", wanted, 1, 65535));
    } else if (const auto port = environment_("MASTER_PORT")) {
      launch_.port = static_cast<int>(number("MASTER_PORT", *port, 1, 65535));
      if (environment_("TORCHELASTIC_USE_AGENT_STORE") == "True")
        launch_.more_ports = kPortsAfterTorchrun;
    } else {
      // Two jobs on one node need two ports, known to all ranks of each.
      launch_.port = kDefaultPort;
      if (slurm_job)
        launch_.port =
            20000 + static_cast<int>(std::strtoll(slurm_job->c_str(), nullptr, 10) % 20000);
    }
    for (const char* id : {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "OMPI_MCA_ess_base_jobid"})
      if (const auto value = environment_(id); value && launch_.job.empty()) launch_.job = *value;
    if (const auto restart = environment_("TORCHELASTIC_RESTART_COUNT"))
      launch_.job += "/" + *restart;
  }

  const Environment& environment_;
  const Scenario& scenario_;
  Launch launch_;
};

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (!value || !*value) return std::nullopt;
    return value;
  };
}

Launch find_launch(const Environment& environment, const Scenario& scenario) {
  return Finder(environment, scenario).find();
}

std::string first_slurm_host(const std::string& list) {
  const size_t open = list.find_first_of("[,");
  if (open == std::string::npos || list[open] == ',') return list.substr(0, open);
  const size_t end = list.find_first_of(",-]", open + 1), close = list.find(']', open);
  if (end == std::string::npos || close == std::string::npos) return list;
  const std::string rest = list.substr(close + 1, list.find(',', close) - close - 1);
  return list.substr(0, open) + list.substr(open + 1, end - open - 1) + rest;
}

}  // namespace moetwin
