// The emulation itself: order within a stream, none between streams, and refusals of what a GPU
// would not do as asked.
#include <cuda_runtime.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/cuda_on_host/runtime/memory.h"
#include "tests/cuda_on_host/runtime/settings.h"
#include "tests/cuda_on_host/runtime/stream.h"

using namespace moetwin::emulated;

namespace {
cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  return stream;
}
cudaEvent_t new_event(unsigned flags = cudaEventDefault) {
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&event, flags) == cudaSuccess);
  return event;
}
/// For a case that needs it only where a call refuses it.
template <class Call>
cudaError_t with_event(Call&& call, unsigned flags = cudaEventDefault) {
  const cudaEvent_t event = new_event(flags);
  const cudaError_t result = call(event);
  cudaEventDestroy(event);
  return result;
}
void pause(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}
}  // namespace

TEST_CASE("work on one stream is done in order, beside the host") {
  const cudaStream_t stream = new_stream();
  std::vector<int> order;
  std::atomic<bool> go = false;
  enqueue(stream, "gate", [&] {
    while (!go) pause(1);
  });
  for (int i = 0; i < 100; ++i) enqueue(stream, "item", [&, i] { order.push_back(i); });
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  go = true;
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
  REQUIRE(order.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(order[static_cast<size_t>(i)] == i);
  cudaStreamDestroy(stream);
}

TEST_CASE("an event wait orders two streams, and its absence shows") {
  const cudaStream_t a = new_stream(), b = new_stream();
  const cudaEvent_t event = new_event();
  for (const bool waits : {true, false}) {
    int written = 0, read = -1;
    enqueue(a, "slow write", [&] {
      pause(30);
      written = 7;
    });
    cudaEventRecord(event, a);
    if (waits) CHECK(cudaStreamWaitEvent(b, event) == cudaSuccess);
    std::atomic<int> seen = -1;
    enqueue(b, "read", [&] { seen = waits ? written : 0; });
    cudaStreamSynchronize(b);
    // Without the wait the second stream did not stand behind the first.
    if (!waits) CHECK(cudaEventQuery(event) == cudaErrorNotReady);
    read = seen;
    CHECK(read == (waits ? 7 : 0));
    cudaStreamSynchronize(a);
  }
  cudaEventDestroy(event);
  cudaStreamDestroy(a);
  cudaStreamDestroy(b);
}

TEST_CASE("a wait is for the record made before it, not for a later one") {
  const cudaStream_t a = new_stream(), b = new_stream();
  const cudaEvent_t event = new_event();
  cudaEventRecord(event, a);
  cudaStreamWaitEvent(b, event);
  std::atomic<bool> go = false;
  enqueue(a, "gate", [&] {
    while (!go) pause(1);
  });
  cudaEventRecord(event, a);
  CHECK(cudaStreamSynchronize(b) == cudaSuccess);  // would hang if it waited for the second record
  go = true;
  cudaStreamSynchronize(a);
  CHECK(with_event([&](cudaEvent_t never) { return cudaStreamWaitEvent(b, never); }) ==
        cudaErrorInvalidResourceHandle);
  cudaEventDestroy(event);
  cudaStreamDestroy(a);
  cudaStreamDestroy(b);
}

TEST_CASE("events measure the time between two points of a stream") {
  const cudaStream_t stream = new_stream();
  const cudaEvent_t start = new_event(), end = new_event();
  cudaEventRecord(start, stream);
  enqueue(stream, "work", [] { pause(20); });
  cudaEventRecord(end, stream);
  float milliseconds = -1;
  cudaEventSynchronize(end);
  CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaSuccess);
  CHECK(milliseconds >= 20);
  CHECK(
      with_event(
          [&](cudaEvent_t untimed) { return cudaEventElapsedTime(&milliseconds, start, untimed); },
          cudaEventDisableTiming) == cudaErrorInvalidResourceHandle);
  cudaEventDestroy(start);
  cudaEventDestroy(end);
  cudaStreamDestroy(stream);
}

TEST_CASE("device memory starts as NaN, is counted and ends") {
  void* memory = nullptr;
  size_t free_before = 0, free_after = 0, total = 0;
  cudaMemGetInfo(&free_before, &total);
  REQUIRE(cudaMalloc(&memory, 4096) == cudaSuccess);
  cudaMemGetInfo(&free_after, &total);
  CHECK(free_before - free_after == 4096);
  CHECK(std::isnan(*static_cast<float*>(memory)));
  void* more = nullptr;
  CHECK(cudaMalloc(&more, total) == cudaErrorMemoryAllocation);
  CHECK(cudaFree(memory) == cudaSuccess);
  CHECK(cudaFree(memory) == cudaErrorInvalidValue);
}

TEST_CASE("copies check where memory is and how long") {
  const cudaStream_t stream = new_stream();
  void *device = nullptr, *pinned = nullptr;
  std::vector<char> pageable(64, 'x');
  cudaMalloc(&device, 64);
  cudaHostAlloc(&pinned, 64, cudaHostAllocDefault);
  std::memset(pinned, 'p', 64);
  CHECK(cudaMemcpyAsync(device, pageable.data(), 64, cudaMemcpyHostToDevice, stream) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(device, pinned, 65, cudaMemcpyHostToDevice, stream) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(device, pinned, 64, cudaMemcpyDeviceToHost, stream) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(device, pinned, 64, cudaMemcpyHostToDevice) ==
        cudaErrorInvalidResourceHandle);
  CHECK(cudaMemcpyAsync(device, pinned, 64, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  CHECK(cudaMemsetAsync(device, 'm', 32, stream) == cudaSuccess);
  CHECK(cudaMemcpyAsync(pinned, device, 64, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  cudaStreamSynchronize(stream);
  CHECK(static_cast<char*>(pinned)[31] == 'm');
  CHECK(static_cast<char*>(pinned)[32] == 'p');
  cudaStreamDestroy(stream);
  cudaFree(device);
  cudaFreeHost(pinned);
}
