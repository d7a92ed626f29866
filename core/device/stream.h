#pragma once
// Handles of the machine's queues and of points in them.

#include <cstdint>

namespace moetwin {

/// A queue of work on one device, numbered from 0 in order of creation.
struct Stream {
  int32_t id = -1;
  bool operator==(const Stream&) const = default;
};

/// A point in a stream's work. Valid until its backend is gone.
struct Event {
  int64_t id = -1;
};

}  // namespace moetwin
