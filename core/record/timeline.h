#pragma once
// timeline.json: what ran when, as a Chrome trace (about:tracing, Perfetto). A process is a rank, a
// thread a stream or the host; times are microseconds of the machine's clock.

#include <cstdint>
#include <string>
#include <vector>

#include "core/device/profile.h"

namespace moetwin {

/// At most this many ranks, from rank 0 on.
inline constexpr int64_t kTimelineRanks = 64;

/// Events of one rank in one step, each with a comma and a newline before it.
std::string timeline_events(int64_t rank, int64_t step, const Profile& profile);

/// The file: names of processes and threads, then the events of every rank.
std::string timeline_file(int64_t ranks, int32_t streams, const std::vector<std::string>& events);

}  // namespace moetwin
