#pragma once
// Plays a tape on one rank's modelled GPU: the same calls, in this rank's time and groups.

#include <vector>

#include "backends/sim/alike/tape.h"
#include "backends/sim/runtime/sim_backend.h"
#include "core/record/run_sink.h"
#include "core/scenario/scenario.h"
#include "core/topology/grid.h"

namespace moetwin {

class Player {
 public:
  /// `leader`: whose program it is; `sink`: null: steps are handed to nobody.
  Player(SimBackend& device, int64_t leader, const Scenario& scenario, const Grid& grid,
         RunSink* sink)
      : device_(device), leader_(leader), scenario_(scenario), grid_(grid), sink_(sink) {}

  void play(const TapeSegment& segment);
  /// Of the last segment that ended with a step.
  int64_t step() const { return step_; }

 private:
  struct Joined {
    GroupState* state;
    int64_t index;
  };
  void add(RankStep step);

  SimBackend& device_;
  int64_t leader_;
  const Scenario& scenario_;
  const Grid& grid_;
  RunSink* sink_;
  std::vector<Joined> joined_;
  Event first_event_{-1};
  std::vector<double> readings_{0.0};
  Profile profile_;  ///< taken last
  int64_t step_ = 0;
};

}  // namespace moetwin
