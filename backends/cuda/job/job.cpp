#include "backends/cuda/job/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace moetwin {
namespace {

/// A library's own error may come before the news of whose process has died: the news is better.
constexpr double kNewsSeconds = 1;
constexpr size_t kCallsShown = 10;

void end_process(const Failure& failure) {
  std::fprintf(stderr, "moetwin: %s\nmoetwin: the process does not end by itself and is ended\n",
               failure.message.c_str());
  std::fflush(stderr);
  ::_exit(static_cast<int>(failure.error_class));
}

}  // namespace

Job::Job(JobSettings settings, Store& store, Store& watch)
    : settings_(std::move(settings)),
      store_(store),
      watch_(watch),
      beat_seconds_(std::clamp(settings_.timeout_seconds / 20, 0.02, 0.5)) {
  if (!settings_.hard_exit) settings_.hard_exit = end_process;
  thread_ = std::thread([this] { run(); });
}

Job::~Job() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (std::thread& t : aborting_) t.join();
}

void Job::add(WatchedRank& rank, int64_t number) {
  const std::lock_guard lock(mutex_);
  ranks_.push_back({&rank, number, -1, ""});
}

void Job::remove(WatchedRank& rank) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return still_aborting_ == 0; });
  const auto it =
      std::find_if(ranks_.begin(), ranks_.end(), [&](const Watched& w) { return w.rank == &rank; });
  if (it == ranks_.end()) return;
  last_words_.emplace_back(it->number, rank.log().status(now()).bytes());
  ranks_.erase(it);
}

std::optional<Failure> Job::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Job::accept(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_ = failure;
  failed_at_ = now();
  failed_ = true;
  changed_.notify_all();
}

void Job::fail(const Failure& failure) {
  Failure stands = failure;
  try {
    stands = store_.fail(failure);
  } catch (const Error&) {
    // Without a store the others learn of the end from its loss.
  }
  accept(stands);
}

std::vector<RankHeartbeat> Job::fresh_states() {
  const uint64_t until = beats_ + 3;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(10 * beat_seconds_),
                    [&] { return beats_ >= until || failure_; });
  lock.unlock();
  check();
  return store_.states();
}

void Job::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    if (!failed_) {
      try {
        look(now());
        beat();
      } catch (const Error& error) {  // the store is lost
        accept({error.error_class(), error.what()});
      }
    }
    lock.lock();
    if (failed_ && !aborted_) {
      aborted_ = true;
      abort_all();
    }
    if (failed_ && !ranks_.empty() && now() > failed_at_ + settings_.grace_seconds) {
      const Failure failure = *failure_;
      lock.unlock();
      settings_.hard_exit(failure);
      lock.lock();
      failed_at_ = now() + 1e9;  // a hard exit that returns is asked once
    }
    changed_.wait_for(lock, std::chrono::duration<double>(beat_seconds_),
                      [&] { return stopping_ || (failed_ && !aborted_); });
  }
}

// With the lock held: each rank is aborted from a thread of its own, since that may block.
void Job::abort_all() {
  for (const Watched& w : ranks_) {
    ++still_aborting_;
    aborting_.emplace_back([this, rank = w.rank] {
      rank->abort_calls();
      {
        const std::lock_guard lock(mutex_);
        --still_aborting_;
      }
      changed_.notify_all();
    });
  }
}

void Job::look(double now) {
  std::optional<Stuck> stuck;
  std::string error;
  {
    const std::lock_guard lock(mutex_);
    for (Watched& w : ranks_) {
      if (const auto said = w.rank->look(); said && w.error_since < 0) {
        w.error_since = now;
        w.error = fmt::format("rank {}: {}", w.number, *said);
      }
      if (w.error_since >= 0 && now > w.error_since + kNewsSeconds && error.empty())
        error = w.error;
      const CallLog& log = w.rank->log();
      if (const auto call = log.overdue(now, settings_.timeout_seconds); call && !stuck)
        stuck = describe_call(log, *call, now);
    }
  }
  if (stuck) report(*stuck);
  if (!error.empty() && !failed_) accept(watch_.fail({ErrorClass::fault, error}));
}

Stuck Job::describe_call(const CallLog& log, uint64_t call, double now) const {
  Stuck stuck;
  const auto record = log.find(call);
  if (!record) return stuck;
  stuck.rank = log.rank();
  stuck.group = log.name(record->communicator);
  stuck.members = log.members(record->communicator);
  stuck.sequence = record->sequence;
  stuck.pair = is_pair(record->kind);
  stuck.call = describe(*record, stuck.group);
  stuck.seconds = now - record->started;
  stuck.limit = settings_.timeout_seconds;
  stuck.calls = log.text(kCallsShown, now);
  return stuck;
}

void Job::report(const Stuck& stuck) {
  // What others last said may be a beat old: let all that are alive say it once more.
  for (int i = 0; i < 3; ++i) {
    beat();
    if (failed_) return;
    std::this_thread::sleep_for(std::chrono::duration<double>(beat_seconds_));
  }
  accept(watch_.fail(describe_stuck(stuck, watch_.states())));
}

void Job::beat() {
  std::vector<std::pair<int64_t, std::string>> all;
  {
    const std::lock_guard lock(mutex_);
    all = last_words_;
    for (const Watched& w : ranks_) all.emplace_back(w.number, w.rank->log().status(now()).bytes());
  }
  for (const auto& [number, status] : all)
    if (const auto failure = watch_.beat(number, status)) accept(*failure);
  ++beats_;
  changed_.notify_all();
}

}  // namespace moetwin
