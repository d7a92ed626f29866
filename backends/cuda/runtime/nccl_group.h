#pragma once
// One NCCL communicator of one rank, and its calls that are on the device.

#include <cuda_runtime.h>
#include <nccl.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "backends/cuda/job/job.h"
#include "core/device/communicator.h"

namespace moetwin {

ncclDataType_t nccl_type(DType dtype);

class NcclGroup {
 public:
  /// Makes the communicator with the other members: waits for them, at most the job's time-out.
  /// `name` is for messages; `key` names it in the store, the same on all members. Throws Error
  /// that names who is missing.
  NcclGroup(Job& job, CallLog& log, const Group& group, int64_t rank, const std::string& name,
            const std::string& key);
  /// Waits for the other members; aborts where the job has failed.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  const Group& group() const { return group_; }
  int64_t rank() const { return rank_; }
  const std::string& name() const { return name_; }
  int log_index() const { return log_index_; }
  const std::string& key() const { return key_; }

  /// Puts the call on the stream. From the rank's thread.
  void enqueue(const CollectiveCall& call, cudaStream_t stream);
  /// f64 [count] in place, the smallest over the members.
  void smallest(double* device, int64_t count, cudaStream_t stream);
  /// The call numbered `logged` begins at `start`, which is recorded. Until tracked_end() nothing
  /// is known of its end: NCCL may keep the call itself waiting.
  void track(uint64_t logged, std::shared_ptr<CUevent_st> start, std::shared_ptr<CUevent_st> end);
  void tracked_end();
  /// Collectives, and sends and receives, are numbered apart.
  uint64_t next_number(bool pair) { return ++calls_[pair]; }
  uint64_t next_compared() { return ++compared_; }
  /// Number of a transfer with this member in one direction.
  uint64_t next_transfer(int64_t peer, bool sends) { return ++transfers_[{peer, sends}]; }

  // From the watchdog's thread.
  std::optional<std::string> look(double now);
  void abort();

 private:
  void make();
  void settle(ncclResult_t result, const char* what);
  void all_to_all(const CollectiveCall& call, cudaStream_t stream);
  [[noreturn]] void aborted() const;

  Job& job_;
  CallLog& log_;
  const Group group_;
  const int64_t rank_;
  const std::string name_, key_;
  int log_index_ = 0;
  uint64_t calls_[2] = {0, 0};
  uint64_t compared_ = 0;
  std::map<std::pair<int64_t, bool>, uint64_t> transfers_;
  void* barrier_ = nullptr;  ///< i32 [1] on the device

  std::mutex mutex_;  ///< of the communicator: NCCL is not to be called from two threads at once
  ncclComm_t comm_ = nullptr;
  bool aborted_ = false;
  struct Tracked {
    uint64_t logged;
    std::shared_ptr<CUevent_st> start, end;
    bool started = false, end_recorded = false;
  };
  std::mutex tracked_mutex_;
  std::deque<Tracked> tracked_;
};

}  // namespace moetwin
