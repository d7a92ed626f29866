#pragma once
// The report of a job that is stuck: what is waited for, and who has not come.

#include <string>
#include <vector>

#include "backends/cuda/job/call_log.h"
#include "backends/cuda/job/store.h"

namespace moetwin {

/// What one rank is stuck in.
struct Stuck {
  int64_t rank = 0;
  std::string group;             ///< name of the communicator
  std::vector<int64_t> members;  ///< world ranks
  uint64_t sequence = 0;         ///< 0: making the communicator
  bool pair = false;             ///< send or receive: numbers of calls say nothing of others
  std::string call;              ///< in words, with sizes
  double seconds = 0;            ///< waited so far
  double limit = 0;              ///< distributed_config.timeout_seconds
  std::string calls;             ///< the last calls of the rank, one line each
};

/// First line: the collective, its group, sequence number and sizes, and the ranks that have not
/// arrived; then what each member was last heard of; then the rank's own last calls. The class is
/// deadlock when every rank that is missing is alive (it waits elsewhere or its program ended:
/// ranks call different things), else fault.
Failure describe_stuck(const Stuck& stuck, const std::vector<RankHeartbeat>& states);

}  // namespace moetwin
