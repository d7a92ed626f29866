#include "backends/cuda/runtime/events.h"

#include "backends/cuda/runtime/check.h"

namespace moetwin {

EventPool::~EventPool() {
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
  for (cudaEvent_t e : state_->free) cudaEventDestroy(e);
  state_->free.clear();
}

std::shared_ptr<CUevent_st> EventPool::get() {
  cudaEvent_t event = nullptr;
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->free.empty()) {
      event = state_->free.back();
      state_->free.pop_back();
    }
  }
  if (!event) check_cuda(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreate");
  return std::shared_ptr<CUevent_st>(event, [state = state_](cudaEvent_t e) {
    const std::lock_guard lock(state->mutex);
    if (state->closed)
      cudaEventDestroy(e);
    else
      state->free.push_back(e);
  });
}

}  // namespace moetwin
