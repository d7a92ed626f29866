#pragma once
// Many independent simulations: each in a process of its own, since SimGrid keeps one clock per
// process, several at once. What comes back depends on the jobs alone, never on how many run side
// by side or on which ends first.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace moetwin {

/// What became of one job.
struct JobResult {
  bool ok = false;
  std::string bytes;  ///< what the job returned
  ErrorClass error_class = ErrorClass::internal;
  std::string error;       ///< what it threw, or what ended its process
  double cpu_seconds = 0;  ///< user and system, of its process
  int64_t peak_bytes = 0;  ///< most memory its process had at once
};

struct ProcessOptions {
  int processes = 0;  ///< at most this many at once; 0: as many as the machine has cores
  double seconds = std::numeric_limits<double>::infinity();  ///< a job that takes longer is ended
  /// No job begins after that long.
  double all_seconds = std::numeric_limits<double>::infinity();
  /// Called in this process as jobs end, in whatever order they do.
  std::function<void(size_t index, const JobResult&)> on_done;
};

/// Runs job(0) .. job(count - 1); results in that order. A job sees a copy of this process's memory
/// and nothing of the others. One that throws, crashes, is killed or ended for its time, or was
/// never begun, is a result like any other. Throws Error(internal) where this process has threads
/// (a copy of it would have one of them only) or no process can be made.
std::vector<JobResult> run_in_processes(size_t count, const std::function<std::string(size_t)>& job,
                                        const ProcessOptions& options = {});

}  // namespace moetwin
