#include "core/record/profile_schedule.h"

#include <algorithm>

#include "core/record/timeline.h"

namespace moetwin {

ProfileAction profile_action(const ProfileConfig& profile, int64_t step) {
  if (profile.active == 0) return ProfileAction::none;
  const int64_t cycle = profile.wait + profile.warmup + profile.active;
  if (profile.repeat > 0 && (step - 1) / cycle >= profile.repeat) return ProfileAction::none;
  const int64_t at = (step - 1) % cycle;
  if (at < profile.wait) return ProfileAction::none;
  return at < profile.wait + profile.warmup ? ProfileAction::warmup : ProfileAction::record;
}

bool in_timeline(const Scenario& scenario, int64_t step) {
  if (profile_action(scenario.profile, step) == ProfileAction::record) return true;
  const std::vector<int64_t>& steps = scenario.output.timeline_steps;
  if (steps.empty() && scenario.profile.active == 0) return step == scenario.training_config.steps;
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

bool traced(const Scenario& scenario, int64_t step) {
  return profile_action(scenario.profile, step) != ProfileAction::none ||
         in_timeline(scenario, step);
}

bool shows_ops(const Scenario& scenario, int64_t step, int64_t rank) {
  return rank < kTimelineRanks || profile_action(scenario.profile, step) != ProfileAction::none;
}

}  // namespace moetwin
