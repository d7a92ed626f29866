#pragma once
// When the work of one rank was on its device, from CUDA events, and when its host thread was busy.
//
// Without detail, neighbours on a stream of one activity and phase are one stretch: it ends where
// the stream waits for another one, where the host waits, where a collective or a copy stands, and
// at every phase() call. Idle time inside a stretch, when the host launches too slowly, then counts
// as work; with detail every op has events of its own.

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/runtime/events.h"
#include "core/device/profile.h"

namespace moetwin {

/// Work between two events.
struct Span {
  std::shared_ptr<CUevent_st> start, end;
  Activity activity = Activity::compute;
  Phase phase = Phase::other;
  int32_t stream = 0;
  const char* name = "";
  const char* group = "";
  int64_t bytes = 0, order = 0;
  /// Collectives whose members share their durations: which of the communicator's since the last
  /// take(), and the communicator; -1: not shared.
  int communicator = -1;
};

class Timeline {
 public:
  Timeline(EventPool& events, std::function<double()> clock);
  ~Timeline();

  void add_stream(cudaStream_t stream);
  void detail(bool on) { detailed_ = on; }
  bool detailed() const { return detailed_; }
  void phase(Phase phase);

  /// An op of `bytes` is about to be launched, and has been.
  void before_op(int32_t stream, const char* name, int64_t bytes, int64_t order);
  void after_op(int32_t stream);
  /// Work that is a stretch of its own: records its start. end() records the end and keeps it.
  Span begin(int32_t stream, Activity activity, const char* name, int64_t bytes, int64_t order);
  Span begin_copy(int32_t stream, const char* name, int64_t bytes, int64_t order) {
    return begin(stream, phase_ == Phase::data ? Activity::data : Activity::offload, name, bytes,
                 order);
  }
  void end(const Span& span);
  /// The stream is about to wait for something.
  void close(int32_t stream);

  /// The host thread begins and ends to wait for the device.
  void host_waits();
  void host_goes_on();
  /// What the host did since it last went on, or since the last call, was this.
  void host_was(Activity activity);

  /// Everything since the last take(), in seconds of the clock; all streams must be idle.
  /// `shortest`: by communicator, the shortest durations of its spans over the group, in their
  /// order; a span then starts that long before its end. Empty: own durations.
  using Shortest = std::vector<std::vector<double>>;
  void take(std::vector<Interval>& into, const Shortest& shortest);
  /// By communicator, the durations of its spans since the last take().
  Shortest durations() const;

 private:
  struct Open {
    bool open = false;
    Span span;
  };
  double at(const std::shared_ptr<CUevent_st>& event) const;
  void anchor();

  EventPool& events_;
  std::function<double()> clock_;
  std::vector<cudaStream_t> streams_;
  std::vector<Open> open_;
  std::vector<Span> spans_;
  std::vector<Interval> host_;
  cudaStream_t anchor_stream_ = nullptr;
  std::shared_ptr<CUevent_st> anchor_;
  double anchor_seconds_ = 0;
  double host_since_ = 0;
  Phase phase_ = Phase::other;
  bool detailed_ = false;
};

}  // namespace moetwin
