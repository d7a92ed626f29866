#pragma once
// CUDA events that go back to a pool when the last owner lets go of them.

#include <cuda_runtime.h>

#include <memory>
#include <mutex>
#include <vector>

namespace moetwin {

/// From any thread.
class EventPool {
 public:
  EventPool() : state_(std::make_shared<State>()) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  /// With timing.
  std::shared_ptr<CUevent_st> get();

 private:
  struct State {
    std::mutex mutex;
    std::vector<cudaEvent_t> free;
    bool closed = false;
  };
  std::shared_ptr<State> state_;
};

}  // namespace moetwin
