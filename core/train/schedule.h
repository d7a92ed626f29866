#pragma once
// Learning-rate schedules as factors on the peak rate.

#include <cstdint>

#include "core/scenario/scenario.h"

namespace moetwin {

/// Factor of a schedule at a 1-based step of a training of `total` steps. Warm-up is linear: step s
/// of w has s / w. cosine falls from 1 after the warm-up to min_ratio at decay_steps (0: total) and
/// stays. hold is hold_ratio through hold_steps, then 1.
double schedule_factor(const Schedule& schedule, int64_t step, int64_t total);

}  // namespace moetwin
