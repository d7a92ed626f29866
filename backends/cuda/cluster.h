#pragma once
// Real GPUs: one rank per GPU, as threads of this process or one process each under a launcher.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/job/environment.h"
#include "core/device/backend.h"
#include "core/scenario/scenario.h"

namespace moetwin {

struct CudaOptions {
  /// Seconds of wall time, from any start: core has no clock of its own. Required.
  std::function<double()> clock;
  /// Where launchers' variables are read; by default this process's.
  Environment environment = process_environment();
  /// Lines a user should see (which interface each node uses); rank 0's process only. May be null.
  std::function<void(const std::string&)> log;
  /// Compare every collective over the job's store before it starts: slow, for finding a rank that
  /// calls something else. Also with MOETWIN_CHECK_COLLECTIVES=1.
  bool compare_collectives = false;
  /// Several ranks may use one GPU (NCCL wants a NCCL_HOSTID of its own for each then, and so one
  /// process each). Also with MOETWIN_SHARE_GPUS=1. For tests: slow, and memory is divided.
  bool share_gpus = false;
  /// NVML's library; empty: the driver's. Where there is none, figures are left out.
  std::string nvml_library;
  /// How long processes wait for each other at the start.
  double rendezvous_seconds = 120;
  /// Up to so much each rank exchanges with the others before the program starts; 0: nothing.
  int64_t self_test_bytes = int64_t{16} << 20;
  /// What aborting may take before a process is ended hard.
  double grace_seconds = 10;
};

/// A rank's GPU when its program ended. Figures that the driver does not report are -1.
struct RankGpu {
  int64_t rank = 0;
  std::string host, name, pci;
  int temperature_celsius = -1, sm_clock_mhz = -1, sm_clock_most_mhz = -1, memory_clock_mhz = -1;
  double power_watts = -1, power_limit_watts = -1;
  std::string slowed_by;  ///< "power limit, thermal (software)"; empty: nothing
};

/// A cluster of which this process drives some ranks.
class CudaCluster : public Cluster {
 public:
  /// This process has rank 0: it keeps the record.
  virtual bool first_process() const = 0;
  /// Ranks that this process drives.
  virtual std::vector<int64_t> local_ranks() const = 0;
  /// Collective over processes, in one order, before the cluster runs or while it does: every
  /// process's bytes, by lowest rank.
  virtual std::vector<std::string> gather_bytes(const std::string& bytes) = 0;
  /// From any rank's thread: bytes for rank 0's process, in the order of each sender.
  virtual void post(const std::string& bytes) = 0;
  /// In rank 0's process: called with each post, from one thread at a time. Set before run().
  virtual void on_post(std::function<void(const std::string&)> receive) = 0;
  /// In rank 0's process after run(): the GPU of every rank, as it was when the rank's program
  /// ended.
  virtual std::vector<RankGpu> gpus() const = 0;
};

/// Finds who started this process (job/launch.h), its GPU and the other processes. Throws
/// Error(configuration) with what to do: CUDA or NCCL absent or too old, no or too few GPUs,
/// launcher variables that are missing or wrong, two ranks on one GPU, numerics none, fp64. In a
/// build without CUDA it always throws, saying how to get one.
std::unique_ptr<CudaCluster> make_cuda_cluster(const Scenario& scenario,
                                               const CudaOptions& options);

/// Whether this build can drive GPUs; where not, why.
bool built_with_cuda();

}  // namespace moetwin
