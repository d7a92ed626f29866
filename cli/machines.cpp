#include "cli/machines.h"

#include <filesystem>
#include <thread>

#include "backends/sim/cluster.h"
#include "core/base/error.h"
#include "core/ops/isa.h"
#include "core/scenario/rules.h"

namespace moetwin {

namespace fs = std::filesystem;

std::vector<std::string> shipped_directories(const Scenario& scenario, const std::string& kind) {
  std::vector<std::string> found;
  const auto add = [&](const fs::path& directory) {
    std::error_code ignored;
    if (fs::is_directory(directory, ignored))
      found.push_back(fs::weakly_canonical(directory).string());
  };
  if (!scenario.path.empty()) add(fs::path(scenario.path).parent_path() / kind);
  add(fs::path(MOETWIN_SOURCE_SCENARIOS) /
      kind);  // the tree this program was built from, if it is still there
  std::error_code no_proc;
  const fs::path program = fs::read_symlink("/proc/self/exe", no_proc);
  if (!no_proc) {
    add(program.parent_path().parent_path() / "share" / "moetwin" / "scenarios" / kind);
  }
  return found;
}

ClusterProfile machine_profile(const Scenario& scenario) {
  return read_cluster_profile(scenario.cluster.profile, shipped_directories(scenario, "clusters"));
}

std::unique_ptr<Cluster> make_machine(const Scenario& scenario, const MachineOptions& options) {
  check_backend(scenario, options.backend);
  if (options.backend != "sim")
    throw Error(ErrorClass::configuration,
                "--backend " + options.backend + " is not in this build; legal here: sim");
  SimOptions sim;
  sim.threads = options.threads > 0
                    ? options.threads
                    : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  sim.profile_directories = shipped_directories(scenario, "clusters");
  sim.references = [isa = best_isa()](const Op& op) { return reference_of(op, isa); };
  return make_sim_cluster(scenario, sim);
}

}  // namespace moetwin
