#include "core/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace moetwin {

double schedule_factor(const Schedule& schedule, int64_t step, int64_t total) {
  const double warm =
      schedule.warmup_steps > 0
          ? std::min(1.0, static_cast<double>(step) / static_cast<double>(schedule.warmup_steps))
          : 1.0;
  if (schedule.kind == "hold")
    return warm * (step <= schedule.hold_steps ? schedule.hold_ratio : 1);
  if (schedule.kind != "cosine") return warm;
  const int64_t end = schedule.decay_steps > 0 ? schedule.decay_steps : total;
  const int64_t length = std::max<int64_t>(1, end - schedule.warmup_steps);
  const double done = std::clamp(
      static_cast<double>(step - schedule.warmup_steps) / static_cast<double>(length), 0.0, 1.0);
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * done));
  return warm * (schedule.min_ratio + (1 - schedule.min_ratio) * cosine);
}

}  // namespace moetwin
