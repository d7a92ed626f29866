#pragma once
// The machines a scenario can run on: the only place that names the backends.

#include <json/value.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/sim/cluster/profile.h"
#include "core/device/backend.h"
#include "core/record/report.h"
#include "core/scenario/scenario.h"
#include "core/topology/grid.h"
#include "core/train/trainer.h"

namespace moetwin {

struct MachineOptions {
  std::string backend = "sim";   ///< sim | cuda
  std::string chakra_directory;  ///< of traces of the last step; empty: none. sim only
  int threads = 0;               ///< workers for the modelled machine's arithmetic; 0: all cores
};

/// The profile of the machine that a scenario is modelled on.
ClusterProfile machine_profile(const Scenario& scenario);

/// The modelled machine of a scenario as a SimGrid platform file.
std::string machine_platform(const Scenario& scenario);

/// A machine, and what this process is of a job that may have several.
struct RunMachine {
  std::unique_ptr<Cluster> cluster;
  /// Instead of cluster->run(train_rank): hands estimates of the steps to the record. Null: nothing
  /// is estimated.
  std::function<void(const Scenario&, const Grid&, const TrainerServices&)> estimate;
  /// Instead of cluster->run(train_rank), where a machine has a shorter way to the same; the last
  /// argument is called on a rank before anything else. Null: there is none.
  std::function<void(const Scenario&, const Grid&, const TrainerServices&,
                     const std::function<void()>&)>
      train;
  /// Rank 0 is here: this process keeps the record and speaks to the user.
  bool is_first = true;
  int64_t local_ranks = 0;  ///< that this process drives
  /// Sends bytes to the first process, and what that one does with them; null where all ranks are
  /// in one process.
  std::function<void(const std::string&)> post;
  std::function<void(std::function<void(const std::string&)>)> on_post;
  /// What the machine is like after a run, for the report: name, value. Null: nothing.
  std::function<Json::Value()> environment;
  /// What that says of a run, given its report. Null: nothing.
  std::function<std::vector<Verdict>(const Report&)> verdicts;
  /// What every process says, by lowest rank: each calls it, in one order.
  std::function<std::vector<std::string>(const std::string&)> gather;

  /// Whether any process says yes.
  bool any(bool mine) const;
};

/// What to say of CUDA_DEVICE_MAX_CONNECTIONS (null: not set) before a run: with 1 all streams
/// share one hardware queue, so that little of what should overlap does. Empty: nothing.
std::string connections_warning(const Scenario& scenario, const char* connections);

/// What to say of a run that simulates every message by itself and has many ranks. Empty: nothing.
std::string flow_warning(const Scenario& scenario);

/// `log` gets lines that a user should see before a run; `within_first`, where every message is
/// simulated by itself, the share of the first step that is done, by what a step is estimated to
/// take. Null: nobody asks.
RunMachine make_machine(const Scenario& scenario, const MachineOptions& options,
                        const std::function<void(const std::string&)>& log,
                        const std::function<void(double)>& within_first);

}  // namespace moetwin
