#pragma once
// What one rank measures of a machine that otherwise does nothing.

#include <functional>

#include "core/device/allocator.h"
#include "core/device/backend.h"

namespace moetwin {

/// Seconds that what `work` puts on `stream` keeps the device or its links busy: the intervals of
/// the profile, without the host's launching. The same calls on every rank.
inline double device_seconds(Backend& device, Stream stream, const std::function<void()>& work) {
  device.synchronize(stream);
  device.take_profile(true);
  work();
  device.synchronize(stream);
  double seconds = 0;
  for (const Interval& i : device.take_profile(true).intervals)
    if (i.stream >= 0) seconds += i.end - i.start;
  return seconds;
}

}  // namespace moetwin
