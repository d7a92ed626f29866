#pragma once
// The machines a scenario can run on: the only place that names the backends.

#include <memory>
#include <string>
#include <vector>

#include "backends/sim/cluster/profile.h"
#include "core/device/backend.h"
#include "core/scenario/scenario.h"

namespace moetwin {

struct MachineOptions {
  std::string backend = "sim";  ///< sim | cuda
  int threads = 0;              ///< workers for the modelled machine's arithmetic; 0: all cores
};

/// The profile of the machine that a scenario is modelled on.
ClusterProfile machine_profile(const Scenario& scenario);

std::unique_ptr<Cluster> make_machine(const Scenario& scenario, const MachineOptions& options);

/// Where machine profiles and other shipped files of `kind` ("clusters") may lie: beside the
/// scenario, in the source tree of a build, in share/moetwin of an installation.
std::vector<std::string> shipped_directories(const Scenario& scenario, const std::string& kind);

}  // namespace moetwin
