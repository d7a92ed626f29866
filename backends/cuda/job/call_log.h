#pragma once
// The last collectives of one rank: what the watchdog reads and a report of a stuck job shows. The
// rank's thread adds calls; the watchdog's thread notes when they start and end on the device.

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/device/communicator.h"

namespace moetwin {

struct CallRecord {
  int communicator = 0;
  CollectiveKind kind = CollectiveKind::barrier;
  uint64_t sequence = 0;  ///< within the communicator; sends and receives are counted apart
  DType dtype = DType::f32;
  int64_t count = 0;  ///< elements of what is sent (received: recv)
  std::string what;   ///< shapes and rows, for messages
  const char* purpose = "";
  int32_t stream = 0;
  // Seconds of the rank's clock; -1: not yet. Device times are when the watchdog saw them.
  double called = -1, started = -1, ended = -1;
};

/// How one communicator of a rank stands.
struct CommunicatorState {
  std::string name;
  std::vector<int64_t> members;
  bool created = false;
  /// The last collective's sequence that did. Sends and receives do not count: their numbers differ
  /// between members.
  uint64_t called = 0, started = 0, ended = 0;
  std::string next;    ///< the oldest call that has not ended, in words; empty: none
  double waiting = 0;  ///< seconds since that one started on the device
};

/// What a rank says in each beat.
struct RankStatus {
  int64_t rank = 0;
  bool program_ended = false;
  std::string last;  ///< its last call in words
  std::vector<CommunicatorState> communicators;

  std::string bytes() const;
  static RankStatus read(const std::string& bytes);
};

class CallLog {
 public:
  static constexpr size_t kKept = 2000;
  explicit CallLog(int64_t rank) : rank_(rank) {}

  /// From the rank's thread. `created`: its NCCL communicator is ready.
  int add_communicator(const std::string& name, const std::vector<int64_t>& members);
  void created(int communicator);
  /// Returns the number to tell the call by.
  uint64_t called(CallRecord record);
  void program_ended();

  /// From the watchdog's thread.
  void started(uint64_t call, double now);
  void ended(uint64_t call, double now);

  RankStatus status(double now) const;
  /// The last `most` calls, newest last, one line each.
  std::string text(size_t most, double now) const;
  /// The first call that has been going on the device for longer than that.
  std::optional<uint64_t> overdue(double now, double seconds) const;
  int64_t rank() const { return rank_; }
  std::optional<CallRecord> find(uint64_t call) const;
  std::vector<int64_t> members(int communicator) const;
  std::string name(int communicator) const;

 private:
  CallRecord* at(uint64_t call);
  void raise(uint64_t CommunicatorState::*last, const CallRecord& record);
  const CallRecord* oldest_open(int communicator) const;

  const int64_t rank_;
  mutable std::mutex mutex_;
  std::deque<CallRecord> calls_;
  uint64_t first_ = 0;  ///< number of calls_.front()
  std::vector<CommunicatorState> communicators_;
  bool program_ended_ = false;
};

/// "all_to_all_v 17 of group ep (\"dispatch\"): bf16 [64,512] to [80,512]".
std::string describe(const CallRecord& call, const std::string& group);

}  // namespace moetwin
