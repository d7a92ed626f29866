#pragma once
// Who started this process, and which rank it is: read from what launchers put into the
// environment.

#include <cstdint>
#include <string>

#include "backends/cuda/job/environment.h"
#include "core/scenario/scenario.h"

namespace moetwin {

struct Launch {
  std::string launcher;         ///< "torchrun", "Open MPI", ... for messages
  bool all_ranks_here = false;  ///< no launcher: the ranks are threads of this process
  int64_t world = 1, rank = 0;
  int64_t local_rank = 0, local_world = 1;  ///< on this node
  std::string address;                      ///< of rank 0
  int port = 0;
  /// Ports after `port` that rank 0 may listen at instead: torchrun keeps `port` for itself.
  int more_ports = 0;
  std::string job;  ///< the launcher's id of the job, so that two jobs do not meet; may be empty
};

/// Recognises torchrun, DeepSpeed's launcher, Open MPI, MPICH and Intel MPI, MVAPICH2, srun, or
/// variables set by hand as torchrun does; without any, all ranks are here. Throws
/// Error(configuration) that says what to do when variables are missing, contradict each other or
/// are no numbers, or when the world size is not the scenario's.
Launch find_launch(const Environment& environment, const Scenario& scenario);

/// The first host of a Slurm node list: "gpu[07-09,12],n3" is gpu07.
std::string first_slurm_host(const std::string& list);

}  // namespace moetwin
