#pragma once
// Where the seconds of one rank's step went (semantics 7).

#include <array>
#include <cstdint>

#include "core/device/profile.h"

namespace moetwin {

/// The parts, in the order in which they claim an instant.
enum class Part : uint8_t {
  compute,
  all_to_all,
  other_communication,
  offload,
  bubble,
  host,
  data,
  idle
};
inline constexpr int kParts = 8;
const char* part_name(Part part);

struct StepParts {
  std::array<double, kParts> seconds{};  ///< sum to the step
  /// Of compute. `compute_other` is what belongs to none of the four.
  double forward = 0, backward = 0, recompute = 0, optimizer = 0, compute_other = 0;
  /// Communication under compute: not in the parts above, since compute claims those instants.
  double all_to_all_hidden = 0, other_communication_hidden = 0;

  double& operator[](Part part) { return seconds[static_cast<size_t>(part)]; }
  double operator[](Part part) const { return seconds[static_cast<size_t>(part)]; }
  double total() const;
  StepParts& operator+=(const StepParts& other);
  StepParts operator/(double divisor) const;
  /// Makes the parts sum to `step_seconds`: a rank that began later or ended earlier than the step
  /// was idle; one that began before the step's first instant gives up idle time, then the other
  /// parts from the last on.
  void fit(double step_seconds);
};

/// The parts of [start, end]. An instant that no work covers is `bubble` when the next device work
/// to begin is between stages, else host or data where the host thread was busy, else idle. Between
/// stages are sends and receives and, with a `pipeline`, what all stages do together once each is
/// through (gradients of tied embeddings, the norm).
StepParts step_parts(const Profile& profile, double start, double end, bool pipeline = false);

}  // namespace moetwin
