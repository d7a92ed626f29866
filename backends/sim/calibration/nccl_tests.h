#pragma once
// The text that the programs of NVIDIA's nccl-tests print (all_reduce_perf and its like), alone or
// as mpirun and srun prefix it.

#include <cstdint>
#include <string>
#include <vector>

#include "backends/sim/calibration/measurements.h"

namespace moetwin {

struct NcclTestsOptions {
  double least_bytes = 1, most_bytes = 1e18;  ///< sizes to take
  bool in_place = false;                      ///< take the in-place columns
  /// Where a log has no `# Rank` lines: GPUs, and nodes over which they are spread evenly; 0: none
  /// given.
  int64_t ranks = 0, nodes = 0;
};

/// What one log says. Lines that are no rows of the table and should be are named in `problems` as
/// file:line; rows outside the sizes, of no bytes, or with wrong data are left out.
struct NcclTestsLog {
  CollectiveKind kind = CollectiveKind::all_reduce;
  int64_t ranks = 0, nodes = 0, gpus_per_node = 0;  ///< gpus_per_node: ranks on a node
  std::string device;                               ///< as the log names the GPUs; may be empty
  std::vector<CollectiveMeasurement> measurements;
  std::vector<std::string> problems;
};

/// `name`: of the file, for messages; also what tells the collective where the log does not
/// ("all_reduce.log"), unless it begins with a kind and "=": "all_gather=run7.txt". The groups are
/// of a machine with `profile_gpus_per_node`. Throws Error(configuration) naming file and reason
/// when the collective or the number of GPUs cannot be told, when ranks are spread unevenly over
/// nodes, or when no row is left.
NcclTestsLog read_nccl_tests(const std::string& text, const std::string& name,
                             int64_t profile_gpus_per_node, const NcclTestsOptions& options);

}  // namespace moetwin
