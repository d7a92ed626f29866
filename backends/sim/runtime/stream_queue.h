#pragma once
// One stream of the modelled GPU: a passive queue. As long as nothing in it is unresolved, the end
// of each new item is known at once; what stands behind a collective that has not ended, or behind
// an event that is not known yet, waits in `pending`.

#include <cstdint>
#include <vector>

#include "backends/sim/runtime/busy_log.h"
#include "backends/sim/runtime/interval_log.h"
#include "backends/sim/runtime/item_queue.h"
#include "backends/sim/runtime/rendezvous.h"

namespace moetwin {

/// What the host may run ahead on one stream, as on CUDA.
inline constexpr int64_t kRunAhead = 1024;

/// 64 bytes: a rank that runs ahead of a collective queues a thousand.
struct QueueItem {
  enum class Kind : uint8_t { work, collective, record, wait };
  Kind kind = Kind::work;
  Activity activity = Activity::compute;
  Phase phase = Phase::other;
  bool arrived = false;  ///< collective: this member has been counted
  float products = 0;    ///< work: share of `seconds` that is of matrix products and attention
  int32_t member = 0;    ///< collective: which one this is; work: 1 if it has kernels
  float gemm = 0;        ///< work: seconds of matrix products alone
  double launched = 0;   ///< host clock when the first kernel was launched
  double seconds = 0;    ///< work: sum over its kernels; collective: that it may begin ahead
  union {
    double host_bound = 0;   ///< work: when it would end on an idle stream
    Collective* collective;  ///< kept by Rendezvous until it has ended
    int64_t event;           ///< record, wait
  };
  int64_t bytes = 0, order = 0;
  const char* name = "";
};
static_assert(sizeof(QueueItem) <= 64);

struct StreamQueue {
  double end = 0;  ///< of the last resolved item
  ItemQueue<QueueItem> pending;
  int64_t launched = 0, resolved = 0;  ///< work and collectives
  std::vector<double> ends;            ///< of the last kRunAhead resolved ones, by number
  IntervalLog log;
  BusyLog busy;
  double slowed = 0;           ///< seconds lost beside collectives that the next work is longer by
  Phase phase = Phase::other;  ///< of the last resolved work
  TaskGraph::Handle last;      ///< latest task of the stream
  std::vector<TaskGraph::Handle> also;  ///< tasks of events that the next one has to wait for too
  const char* name = "";
};

struct EventState {
  double time = -1;   ///< negative: not known yet
  int32_t waits = 0;  ///< queued waits that will look at it
  TaskGraph::Handle task;
  std::vector<int32_t> blocked;  ///< streams whose first item waits for it
};

}  // namespace moetwin
