#pragma once
// The arithmetic of a simulated run: a graph of closures in stream, event and collective order, run
// by a pool of threads, or by the caller when there is none. Results do not depend on the number of
// threads: the graph alone orders closures that touch the same memory.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace moetwin {

/// Who made a task: of several errors the one with the lowest key is told.
struct TaskKey {
  int64_t rank = 0, order = 0;
  auto operator<=>(const TaskKey&) const = default;
};

class TaskGraph {
 public:
  class Task;
  using Handle = std::shared_ptr<Task>;

  /// `threads` 0: a task runs inside close(), its own or that of the last one before it.
  explicit TaskGraph(int threads);
  ~TaskGraph();
  TaskGraph(const TaskGraph&) = delete;
  TaskGraph& operator=(const TaskGraph&) = delete;

  bool pooled() const { return !threads_.empty(); }
  /// A new task; it cannot run before close().
  Handle open(TaskKey key);
  /// Makes an open task run after another (null: none). Where that fails, this one does not run and
  /// fails with the same error.
  void depend(const Handle& task, const Handle& after);
  void close(const Handle& task, std::function<void()> work);

  /// Waits for the task and throws its error. Null returns at once. Without threads a task that has
  /// not run is an Error(internal): nobody would run it.
  void join(const Handle& task);
  bool done(const Handle& task);
  /// Waits for everything that can run, and throws the error with the lowest key, if any.
  void join_all();
  /// Drops what has not begun and ends the threads.
  void stop();

 private:
  void finish(const Handle& task, std::exception_ptr error, std::unique_lock<std::mutex>& lock);
  void make_ready(Handle task);
  void run(const Handle& task, std::unique_lock<std::mutex>& lock);
  void drain(std::unique_lock<std::mutex>& lock);
  void worker();
  /// Waits on progress_ with all ready tasks given to the pool.
  template <class Condition>
  void wait_for_progress(std::unique_lock<std::mutex>& lock, Condition condition);
  bool idle() const { return ready_.empty() && running_ == 0; }

  std::mutex mutex_;
  std::condition_variable work_, progress_;
  std::deque<Handle> ready_;
  int64_t running_ = 0, unfinished_ = 0;
  int64_t sleeping_ = 0;  ///< workers without a task
  int64_t waiting_ = 0;   ///< callers that wait for progress
  bool stopping_ = false, draining_ = false;
  std::exception_ptr first_error_;
  TaskKey first_error_key_;
  std::vector<std::thread> threads_;
};

}  // namespace moetwin
