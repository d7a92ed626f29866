#include "analysis/plan/bounds.h"

#include <algorithm>
#include <limits>

namespace moetwin {

namespace {

/// What a bound leaves for what it does not know: kernels slowed by other communication than its
/// own, buffers of a reduction that the other way has not.
constexpr double kLeastOfStep = 0.99, kLeastOfTransient = 0.99, kLeastOfGathered = 0.9;

}  // namespace

double hidden_bubble(const std::string& schedule, int64_t virtual_stages) {
  if (schedule == "interleaved_1f1b") return 1 - 0.9 / static_cast<double>(virtual_stages);
  return schedule == "zb_h1" ? 0.7 : 0;
}

Hidden most_hidden(const PlanSpace& space) {
  Hidden hidden;
  hidden.exchange =
      std::find(space.overlap.begin(), space.overlap.end(), true) != space.overlap.end();
  for (const std::string& schedule : space.schedule)
    for (const int64_t virtual_stages : space.virtual_stages)
      hidden.bubble = std::max(hidden.bubble, hidden_bubble(schedule, virtual_stages));
  return hidden;
}

double promise(const PlanFigures& f, const Hidden& hidden) {
  // A stage waits a share of what it does: with less to do it waits less.
  const double bubble = f.parts[Part::bubble], busy = f.step_seconds - bubble;
  double left = busy;
  if (hidden.exchange) left -= f.parts[Part::all_to_all];
  if (hidden.gathering) left -= f.parts[Part::other_communication] + f.parts.optimizer;
  const double least =
      kLeastOfStep * left * (1 + (1 - hidden.bubble) * bubble / std::max(busy, 1e-30));
  return f.tokens_per_second * f.step_seconds / std::max(least, 1e-3 * f.step_seconds);
}

double least_bytes(const PlanFigures& f, int64_t state, const Hidden& hidden) {
  return static_cast<double>(state) + (hidden.gathering ? kLeastOfGathered : kLeastOfTransient) *
                                          static_cast<double>(f.peak_bytes - f.lasting_bytes);
}

double most_of_activations(const std::string& schedule) {
  // Interleaving adds at most a half, two micro-batches side by side double what there is.
  return schedule == "gpipe" ? std::numeric_limits<double>::infinity() : 3;
}

}  // namespace moetwin
