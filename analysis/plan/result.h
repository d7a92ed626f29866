#pragma once
// What an estimator says of a point of a plan.

#include <cstdint>

#include "analysis/plan/space.h"
#include "core/record/step_parts.h"

namespace moetwin {

/// What a step of a point costs; an estimator's answer.
struct PlanFigures {
  double step_seconds = 0, tokens_per_second = 0;
  double mfu = 0;             ///< NaN: unknown
  double dropped_share = 0;   ///< of assignments
  int64_t peak_bytes = 0;     ///< of the fullest rank, with context and communicators
  int64_t lasting_bytes = 0;  ///< of it: tensors that stay from step to step
  StepParts parts;            ///< mean over ranks
};

struct PlanResult {
  PlanPoint point;
  PlanFigures figures;
  double fluid_step_seconds = 0;  ///< of the confirmation; 0: not confirmed
};

}  // namespace moetwin
