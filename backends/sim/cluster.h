#pragma once
// The modelled cluster: SimGrid passes the time, reference arithmetic does the work.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/sim/cluster/profile.h"
#include "core/device/backend.h"
#include "core/device/op.h"
#include "core/scenario/scenario.h"

namespace moetwin {

struct SimOptions {
  int threads = 1;  ///< workers for arithmetic; results do not depend on it
  /// Where machine profiles are looked for, in order.
  std::vector<std::string> profile_directories;
  /// Reference arithmetic of an op, null where there is none: reference_of of core/ops/isa.h with
  /// the instruction set to use.
  std::function<Reference(const Op&)> references;
  /// Where given, the program gets what this makes of each rank's backend; null: the access check
  /// where output.check_access asks for it, else the backend itself.
  std::function<std::unique_ptr<Backend>(Backend&)> wrap;
  /// train(): Chakra traces of the last step are written here (backends/sim/export/chakra.h);
  /// empty: none. Only without numerics.
  std::string chakra_directory;
  /// train(): ranks that are alike share one run of the program. Results do not depend on it.
  bool share_programs = true;
  /// Called with the simulated time, in seconds, whenever it has moved on; null: nothing is.
  std::function<void(double)> time_passes;
  /// SimGrid's contexts/factory; empty: its default. Others are slower; tests use "thread".
  std::string context_factory;
  /// Bytes of each rank's stack.
  int64_t stack_bytes = 1 << 20;
};

class Grid;
struct TrainerServices;

class ModelledCluster : public Cluster {
 public:
  /// run() of the training program (train_rank), where it can be had with one run for ranks that
  /// are alike. `begun` is called on a rank before anything else; null: nothing is.
  virtual void train(const Scenario& scenario, const Grid& grid, const TrainerServices& services,
                     const std::function<void()>& begun) = 0;
  /// This machine for SimGrid's users (backends/sim/export/platform_xml.h).
  virtual std::string platform() const = 0;
};

/// A cluster for the whole world of `scenario`. Throws Error(configuration): unknown or faulty
/// profile, too few nodes, a fidelity or algorithm that is not known or cannot be used.
/// One simulation per process: a second run() in the same process is an Error(internal).
std::unique_ptr<ModelledCluster> make_sim_cluster(const Scenario& scenario,
                                                  const SimOptions& options);
std::unique_ptr<ModelledCluster> make_sim_cluster(const Scenario& scenario, ClusterProfile profile,
                                                  const SimOptions& options);

}  // namespace moetwin
