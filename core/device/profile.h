#pragma once
// What a device did and when, as both machines report it: the parts of a step, the timeline and the
// op list come from this.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace moetwin {

/// Which part of training launched work belongs to.
enum class Phase : uint8_t { other, data, forward, backward, recompute, optimizer };
const char* phase_name(Phase phase);

/// What kept a device (or its host thread) busy.
enum class Activity : uint8_t { compute, all_to_all, other_communication, offload, host, data };
const char* activity_name(Activity activity);

/// Name of a stretch that is no launch: what work lost to a collective beside it.
inline constexpr const char* kSlowedName = "slowed by communication";

/// One stretch of work. Without detail, neighbours of equal activity, phase and stream are merged
/// and `name` is empty.
struct Interval {
  double start = 0,
         end = 0;  ///< seconds of the machine's clock; a collective starts when its last member has
  Activity activity = Activity::compute;
  Phase phase = Phase::other;
  int32_t stream = 0;      ///< -1: the host thread
  const char* name = "";   ///< op or collective
  const char* group = "";  ///< name of the communicator, owned by the backend; empty for ops
  int64_t bytes = 0;       ///< sent by this rank (collectives); read and written (ops)
  int64_t order = 0;       ///< position in launch order
};

/// What this rank did in collectives of one kind, purpose, group and algorithm, since the last
/// call.
struct Traffic {
  std::string kind, purpose, group;
  std::string algorithm;  ///< as the machine took it: "ring, LL128"; empty: it does not tell
  int64_t members = 0;    ///< of the group
  int64_t calls = 0;
  int64_t bytes = 0;           ///< sent by this rank to other ranks
  int64_t bytes_off_node = 0;  ///< of these, to ranks on other nodes
  /// From the last member's arrival to the end; NaN: not measured call by call.
  double seconds = std::numeric_limits<double>::quiet_NaN();
};

struct Profile {
  std::vector<Interval> intervals;
  std::vector<Traffic> traffic;
};

}  // namespace moetwin
