#include "tests/cuda_on_host/runtime/stream.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tests/cuda_on_host/runtime/device.h"
#include "tests/cuda_on_host/runtime/settings.h"

using namespace moetwin::emulated;
using Clock = std::chrono::steady_clock;

namespace {
struct Work {
  const char* what;
  std::function<void()> run;
};
struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, done = 0;
  Clock::time_point at;
};
}  // namespace

struct CUstream_st {
  int device = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> queue;
  uint64_t put = 0, done = 0;
  bool closing = false;
  std::thread worker;

  void loop(uint64_t seed) {
    cudaSetDevice(device);
    std::mt19937_64 random(seed);
    for (;;) {
      Work work;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return closing || !queue.empty(); });
        if (queue.empty()) return;
        work = std::move(queue.front());
        queue.pop_front();
      }
      const Settings& s = settings();
      if (s.delay_microseconds > 0 &&
          std::uniform_real_distribution<>(0, 1)(random) < s.delay_chance)
        std::this_thread::sleep_for(std::chrono::microseconds(
            std::uniform_int_distribution<>(0, s.delay_microseconds)(random)));
      try {
        work.run();
      } catch (const std::exception& error) {
        fail_device(device, std::string(work.what) + ": " + error.what());
      }
      work.run = nullptr;  // what it holds is let go before it counts as done
      {
        const std::lock_guard lock(mutex);
        ++done;
      }
      changed.notify_all();
    }
  }

  void drain() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done == put; });
  }
};

struct CUevent_st {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
  bool timed = true;
};

namespace {

struct Streams {
  std::mutex mutex;
  /// Shared with who waits for all streams of a device while another thread destroys one.
  std::map<CUstream_st*, std::shared_ptr<CUstream_st>> all;
  uint64_t made = 0;
};
Streams& streams() {
  static Streams* s = new Streams;  // outlives every stream
  return *s;
}

void wait_for(EventState& event, uint64_t version) {
  std::unique_lock lock(event.mutex);
  event.changed.wait(lock, [&] { return event.done >= version; });
}

}  // namespace

namespace moetwin::emulated {

cudaError_t enqueue(cudaStream_t stream, const char* what, std::function<void()> work) {
  if (!stream)
    return misuse(cudaErrorInvalidResourceHandle,
                  std::string(what) + " on the default stream, which is not emulated");
  if (const cudaError_t e = device_error(stream->device)) return e;
  {
    const std::lock_guard lock(stream->mutex);
    stream->queue.push_back({what, std::move(work)});
    ++stream->put;
  }
  stream->changed.notify_all();
  return cudaSuccess;
}

int device_of(cudaStream_t stream) { return stream->device; }

}  // namespace moetwin::emulated

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  if (flags != cudaStreamNonBlocking)
    return misuse(cudaErrorInvalidValue, "a stream that is not cudaStreamNonBlocking");
  const auto shared = std::make_shared<CUstream_st>();
  CUstream_st* made = shared.get();
  made->device = current_device();
  const std::lock_guard lock(streams().mutex);
  streams().all.emplace(made, shared);
  const uint64_t seed = settings().seed * 1000003 + streams().made++;
  made->worker = std::thread([made, seed] { made->loop(seed); });
  *stream = made;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (!stream) return misuse(cudaErrorInvalidResourceHandle, "destroys the default stream");
  std::shared_ptr<CUstream_st> last;
  {
    const std::lock_guard lock(streams().mutex);
    const auto found = streams().all.find(stream);
    if (found == streams().all.end())
      return misuse(cudaErrorInvalidResourceHandle, "destroys a stream that is none");
    last = std::move(found->second);
    streams().all.erase(found);
  }
  {
    const std::lock_guard lock(stream->mutex);
    stream->closing = true;
  }
  stream->changed.notify_all();
  stream->worker.join();
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!stream) return misuse(cudaErrorInvalidResourceHandle, "synchronizes the default stream");
  stream->drain();
  return device_error(stream->device);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (!stream) return misuse(cudaErrorInvalidResourceHandle, "queries the default stream");
  const std::lock_guard lock(stream->mutex);
  if (stream->done != stream->put) return cudaErrorNotReady;
  return device_error(stream->device);
}

cudaError_t cudaDeviceSynchronize() {
  const int device = current_device();
  std::vector<std::shared_ptr<CUstream_st>> all;
  {
    const std::lock_guard lock(streams().mutex);
    for (const auto& [handle, stream] : streams().all)
      if (stream->device == device) all.push_back(stream);
  }
  for (const auto& stream : all) stream->drain();
  return device_error(device);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return enqueue(stream, "host function", [function, data] { function(data); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st;
  (*event)->timed = !(flags & cudaEventDisableTiming);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  uint64_t version;
  {
    const std::lock_guard lock(event->state->mutex);
    version = ++event->state->recorded;
  }
  return enqueue(stream, "event", [state = event->state, version] {
    {
      const std::lock_guard lock(state->mutex);
      state->done = std::max(state->done, version);
      state->at = Clock::now();
    }
    state->changed.notify_all();
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  uint64_t version;
  {
    const std::lock_guard lock(event->state->mutex);
    version = event->state->recorded;
  }
  if (version == 0)
    return misuse(cudaErrorInvalidResourceHandle, "waits for an event that was never recorded");
  return enqueue(stream, "wait", [state = event->state, version] { wait_for(*state, version); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  uint64_t version;
  {
    const std::lock_guard lock(event->state->mutex);
    version = event->state->recorded;
  }
  wait_for(*event->state, version);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(event->state->mutex);
  return event->state->done >= event->state->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (!start->timed || !end->timed)
    return misuse(cudaErrorInvalidResourceHandle, "times events made without timing");
  Clock::time_point at[2];
  const CUevent_st* both[2] = {start, end};
  for (int i = 0; i < 2; ++i) {
    const std::lock_guard lock(both[i]->state->mutex);
    if (both[i]->state->recorded == 0)
      return misuse(cudaErrorInvalidResourceHandle, "times an event that was never recorded");
    if (both[i]->state->done < both[i]->state->recorded) return cudaErrorNotReady;
    at[i] = both[i]->state->at;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(at[1] - at[0]).count();
  return cudaSuccess;
}
