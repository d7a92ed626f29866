#include "backends/sim/runtime/task_graph.h"

#include <utility>

#include "core/base/error.h"

namespace moetwin {

namespace {
// The engine makes tasks faster than they run; beyond this many it waits, so that memory stays
// bounded.
constexpr int64_t kMostUnfinished = 4096;
// Waking a thread takes as long as a small task. So workers are woken for this many tasks at once,
// or when somebody waits; and whoever waits for one task is not woken by others.
constexpr size_t kWorthWaking = 16;
}  // namespace

class TaskGraph::Task {
 public:
  TaskKey key;
  int64_t missing = 1;  ///< tasks before it that are not done, and one until it is closed
  bool done = false;
  bool awaited = false;  ///< somebody waits for it
  std::function<void()> work;
  std::vector<Handle> next;
  std::exception_ptr error;
  TaskKey error_key;

  void inherit(const Task& before) {
    if (!before.error || (error && error_key <= before.error_key)) return;
    error = before.error;
    error_key = before.error_key;
  }
};

TaskGraph::TaskGraph(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { worker(); });
}

TaskGraph::~TaskGraph() { stop(); }

TaskGraph::Handle TaskGraph::open(TaskKey key) {
  auto task = std::make_shared<Task>();
  task->key = key;
  std::unique_lock lock(mutex_);
  if (pooled() && unfinished_ >= kMostUnfinished)
    wait_for_progress(lock,
                      [this] { return unfinished_ <= kMostUnfinished / 2 || idle() || stopping_; });
  ++unfinished_;
  return task;
}

void TaskGraph::depend(const Handle& task, const Handle& after) {
  if (!after || after == task) return;
  std::unique_lock lock(mutex_);
  if (after->done) {
    task->inherit(*after);
  } else {
    ++task->missing;
    after->next.push_back(task);
  }
}

void TaskGraph::close(const Handle& task, std::function<void()> work) {
  std::unique_lock lock(mutex_);
  task->work = std::move(work);
  if (--task->missing == 0) make_ready(task);
  if (!pooled()) drain(lock);
}

void TaskGraph::make_ready(Handle task) {
  ready_.push_back(std::move(task));
  if (sleeping_ > 0 && (waiting_ > 0 || ready_.size() >= kWorthWaking)) work_.notify_one();
}

template <class Condition>
void TaskGraph::wait_for_progress(std::unique_lock<std::mutex>& lock, Condition condition) {
  ++waiting_;
  if (sleeping_ > 0 && !ready_.empty()) work_.notify_one();
  progress_.wait(lock, condition);
  --waiting_;
}

void TaskGraph::run(const Handle& task, std::unique_lock<std::mutex>& lock) {
  std::function<void()> work = std::move(task->work);
  task->work = nullptr;
  std::exception_ptr error;
  if (!task->error && work) {
    ++running_;
    lock.unlock();
    try {
      work();
    } catch (...) {  // kept and thrown by whoever joins
      error = std::current_exception();
    }
    work = nullptr;  // gives memory back outside the lock
    lock.lock();
    --running_;
  }
  finish(task, error, lock);
}

void TaskGraph::finish(const Handle& task, std::exception_ptr error,
                       std::unique_lock<std::mutex>&) {
  if (error) {
    task->error = error;
    task->error_key = task->key;
    if (!first_error_ || task->key < first_error_key_) {
      first_error_ = error;
      first_error_key_ = task->key;
    }
  }
  task->done = true;
  --unfinished_;
  for (Handle& next : task->next) {
    next->inherit(*task);
    if (--next->missing == 0) make_ready(std::move(next));
  }
  task->next.clear();
  if (waiting_ > 0 && (task->awaited || idle() || unfinished_ == kMostUnfinished / 2))
    progress_.notify_all();
}

void TaskGraph::drain(std::unique_lock<std::mutex>& lock) {
  if (draining_) return;  // a closure that makes tasks: the outer call runs them
  draining_ = true;
  while (!ready_.empty() && !stopping_) {
    const Handle task = std::move(ready_.front());
    ready_.pop_front();
    run(task, lock);
  }
  draining_ = false;
}

void TaskGraph::worker() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++sleeping_;
    work_.wait(lock, [this] { return stopping_ || !ready_.empty(); });
    --sleeping_;
    if (stopping_) return;
    const Handle task = std::move(ready_.front());
    ready_.pop_front();
    if (sleeping_ > 0 && !ready_.empty()) work_.notify_one();
    run(task, lock);
  }
}

void TaskGraph::join(const Handle& task) {
  if (!task) return;
  std::unique_lock lock(mutex_);
  if (!pooled()) require(task->done, "work that is joined has run");
  task->awaited = true;
  wait_for_progress(lock, [&] { return task->done || stopping_; });
  if (task->error) std::rethrow_exception(task->error);
}

bool TaskGraph::done(const Handle& task) {
  if (!task) return true;
  std::unique_lock lock(mutex_);
  return task->done;
}

void TaskGraph::join_all() {
  std::unique_lock lock(mutex_);
  wait_for_progress(lock, [this] { return idle() || stopping_; });
  if (first_error_) std::rethrow_exception(first_error_);
}

void TaskGraph::stop() {
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    ready_.clear();
  }
  work_.notify_all();
  progress_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace moetwin
