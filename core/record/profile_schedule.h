#pragma once
// Which steps are traced op by op, and what for.

#include <cstdint>

#include "core/scenario/scenario.h"

namespace moetwin {

/// What the scenario's `profile` does in a step.
enum class ProfileAction : uint8_t {
  none,
  warmup,  ///< traced and thrown away, so that what tracing costs at first is not in the table
  record
};

/// Of `step`, counted from 1. Steps go round in cycles of wait, warmup and active, as in
/// torch.profiler.schedule.
ProfileAction profile_action(const ProfileConfig& profile, int64_t step);

/// Whether the timeline shows this step: those of output.timeline_steps and the recorded ones of
/// the profile; the last step where neither names any.
bool in_timeline(const Scenario& scenario, int64_t step);

/// Whether the machine is asked for every op of this step: what RunSink::wants_detail answers.
bool traced(const Scenario& scenario, int64_t step);
/// Ranks that no timeline shows are asked for every op only where a profile counts them all: of
/// thousands of ranks the ops of one step fill gigabytes.
bool shows_ops(const Scenario& scenario, int64_t step, int64_t rank);

}  // namespace moetwin
