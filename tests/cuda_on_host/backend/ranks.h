#pragma once
// Runs a program on the ranks of an emulated machine, as threads of this process or as processes of
// their own that meet over TCP, and tells how each ended.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backends/cuda/cluster.h"
#include "core/device/backend.h"
#include "core/scenario/scenario.h"

namespace moetwin::test {

/// A world of `world` ranks with a small model; time-out 20 s.
Scenario world_of(int64_t world);

/// Seconds of the steady clock.
double seconds_now();

CudaOptions emulated_options();

/// The program of one rank; what it returns is handed back.
using RankProgram = std::function<std::string(Backend&)>;

struct Ended {
  int exit_code = -1;  ///< 0, or an Error's; -1: by a signal
  int signal = 0;
  std::string text;  ///< what the program returned, or the error's message
  double seconds = 0;
};

/// The cluster that runs the program, in its process; null elsewhere.
CudaCluster* running_cluster();

/// What to do with a process's cluster besides: `after` is asked once it has run, and what it
/// returns is added to the text of the process's first rank.
struct AroundRun {
  std::function<void(CudaCluster&)> before;
  std::function<std::string(CudaCluster&)> after;
};

/// Ranks as threads of one child process (in_child: the emulation's threads stay in it). One entry
/// per rank; all have the error's when there is one.
std::vector<Ended> as_threads(const Scenario& scenario, const RankProgram& program,
                              CudaOptions options = emulated_options(),
                              const AroundRun& around = {});

/// One child process per rank, started as torchrun starts them. `change`: may change a process's
/// variables before it starts, by rank. A process that has not ended after `patience` seconds is
/// killed.
std::vector<Ended> as_processes(
    const Scenario& scenario, const RankProgram& program, CudaOptions options = emulated_options(),
    const std::function<void(int64_t, std::map<std::string, std::string>&)>& change = nullptr,
    double patience = 100, const AroundRun& around = {});

}  // namespace moetwin::test
