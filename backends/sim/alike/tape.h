#pragma once
// What the core's program on one rank asks of its machine, call for call, with every launch priced:
// what other ranks with the same program do too, each in its own time and in its own groups.

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "backends/sim/runtime/priced_launch.h"
#include "core/device/communicator.h"
#include "core/record/rank_step.h"

namespace moetwin {

/// One call.
struct TapeEntry {
  enum class Kind : uint8_t {
    stream,  ///< `index` of its name
    launch,  ///< `index` of the launch
    record,  ///< the n-th, from 0
    wait,    ///< for event `index`
    synchronize,
    write,      ///< `bytes`
    read,       ///< `bytes`
    host_work,  ///< `seconds`
    phase,
    communicator,  ///< `index` of the group
    collective,    ///< `index` of the call
    now,           ///< the n-th reading of the clock, from 1
    take_profile,  ///< of what follows, `index`: the step that detail may be asked for
    add,           ///< `index` of the step
  };
  Kind kind;
  int8_t stream = 0;
  Phase phase = Phase::other;
  Activity activity = Activity::compute;
  int32_t index = 0;
  union {
    int64_t bytes = 0;
    double seconds;
  };
};
static_assert(sizeof(TapeEntry) <= 16);

/// The calls up to the end of a step.
struct TapeSegment {
  struct Collective {
    int32_t communicator = 0;  ///< n-th that was made, over all segments
    CollectiveCall call;       ///< tensors without storage
  };
  struct GroupMade {
    Group group;
    std::string name;
  };
  struct Launch {
    PricedLaunch priced;            ///< without its span
    uint32_t first = 0, count = 0;  ///< in `kernels`
  };
  std::vector<TapeEntry> entries;
  std::vector<const char*> names;
  std::vector<Launch> launches;
  std::vector<PricedKernel> kernels;
  std::vector<GroupMade> groups;
  std::vector<Collective> collectives;
  std::vector<RankStep> steps;  ///< start and end: numbers of clock readings, 0: time 0
};

/// Segments in order, each kept until all readers have left it.
class Tape {
 public:
  explicit Tape(int64_t readers) : readers_(readers) {}
  void close(TapeSegment segment) { kept_.push_back({std::move(segment), readers_}); }
  void end() { ended_ = true; }
  int64_t closed() const { return first_ + static_cast<int64_t>(kept_.size()); }
  /// Nothing comes after `closed()` segments.
  bool ended() const { return ended_; }
  /// A closed segment that the caller has not left.
  const TapeSegment& segment(int64_t number) const {
    return kept_[static_cast<size_t>(number - first_)].segment;
  }
  void leave(int64_t number) {
    --kept_[static_cast<size_t>(number - first_)].readers;
    for (; !kept_.empty() && kept_.front().readers == 0; ++first_) kept_.pop_front();
  }

 private:
  struct Kept {
    TapeSegment segment;
    int64_t readers;
  };
  int64_t readers_, first_ = 0;
  std::deque<Kept> kept_;
  bool ended_ = false;
};

}  // namespace moetwin
