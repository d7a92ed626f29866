#pragma once
// One process of a job: its failure, and the watchdog that finds what is stuck and ends it.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/job/call_log.h"
#include "backends/cuda/job/store.h"
#include "backends/cuda/job/stuck.h"

namespace moetwin {

/// A rank of this process as the watchdog sees it. All but abort() return at once.
class WatchedRank {
 public:
  virtual ~WatchedRank() = default;
  virtual CallLog& log() = 0;
  /// Notes in the log which calls have started and ended on the device. Text when the library
  /// reports an error of its own.
  virtual std::optional<std::string> look() = 0;
  /// Ends what is in flight, so that a rank that waits for its device comes back. Once, from a
  /// thread of its own; may block.
  virtual void abort_calls() = 0;
};

struct JobSettings {
  double timeout_seconds = 30;  ///< distributed_config.timeout_seconds
  double grace_seconds = 10;    ///< what aborting may take before the process is ended hard
  std::function<double()> clock;
  /// Ends the process; by default it says the failure on stderr and exits with its class's code.
  std::function<void(const Failure&)> hard_exit;
};

class Job {
 public:
  /// `watch` is used by the watchdog's thread alone; the same object as `store` where that one
  /// takes calls from several threads at once.
  Job(JobSettings settings, Store& store, Store& watch);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Store& store() { return store_; }
  const JobSettings& settings() const { return settings_; }
  double now() const { return settings_.clock(); }
  /// Seconds between two beats.
  double beat_seconds() const { return beat_seconds_; }

  void add(WatchedRank& rank, int64_t number);
  /// The rank's objects end: waits while the watchdog is in them.
  void remove(WatchedRank& rank);

  /// Ends the job on all ranks; the first failure stays.
  void fail(const Failure& failure);
  std::optional<Failure> failure() const;
  /// Throws the failure if there is one.
  void check() const {
    if (failed_) failure()->raise();
  }
  bool failed() const { return failed_; }
  /// What the ranks of the world last said, fresh: waits two beats first.
  std::vector<RankHeartbeat> fresh_states();

 private:
  struct Watched {
    WatchedRank* rank;
    int64_t number;
    double error_since = -1;
    std::string error;
  };
  void run();
  void look(double now);
  void beat();
  void accept(const Failure& failure);
  Stuck describe_call(const CallLog& log, uint64_t call, double now) const;
  void report(const Stuck& stuck);
  void abort_all();

  JobSettings settings_;
  Store& store_;
  Store& watch_;
  double beat_seconds_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Watched> ranks_;
  /// What ranks said that have ended: others may still wait for them.
  std::vector<std::pair<int64_t, std::string>> last_words_;
  std::vector<std::thread> aborting_;
  std::atomic<int> still_aborting_{0};
  std::optional<Failure> failure_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> aborted_{false};
  std::atomic<uint64_t> beats_{0};
  bool stopping_ = false;
  double failed_at_ = 0;
  std::thread thread_;
};

}  // namespace moetwin
