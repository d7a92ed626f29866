#pragma once
// Plays the action lists of all stages of a pipeline, with the rules by which StageExchange moves
// data and with given times of each kind of work, and says how long it takes or where it is stuck.

#include <array>
#include <string>
#include <vector>

#include "core/parallel/pipeline_schedule.h"

namespace moetwin::test {

struct WorkTimes {
  double forward = 1, backward_input = 1, backward_weight = 1;  ///< whole backward: both
  double transfer = 0;
};

struct PipelineRun {
  double seconds = 0;              ///< until the last stage is through
  std::vector<int64_t> in_flight;  ///< by stage: most micro-batches x chunks kept at once
  std::string stuck;               ///< why the stages cannot go on; empty: they can
};

/// Stages p, of which each does its list in order:
/// - a pair of actions that take turns is as one: both begin and end together, after the time of
///   both (nothing of their communication is in these times);
/// - an action begins when the one before is done and what it needs has arrived;
/// - the receive for an action is posted when the action before it begins, so it is ready when the
///   one before that is done;
/// - transfers of one way between two ranks go in order; each begins when its sender is done and
/// its
///   receive is ready;
/// - after the third and each later send of one way, a stage first waits for the send two before.
PipelineRun play(const std::string& schedule, int64_t stages, int64_t micro_batches, int64_t chunks,
                 const WorkTimes& times, bool paired = false);

}  // namespace moetwin::test
