#include "core/base/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace moetwin {

std::string format_bytes(double bytes) {
  constexpr std::array<const char*, 6> kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (std::abs(bytes) >= 1024 && unit + 1 < kUnits.size()) bytes /= 1024, ++unit;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, kUnits[unit]);
}

std::string format_seconds(double seconds) {
  const double magnitude = std::abs(seconds);
  if (magnitude == 0) return "0 s";
  if (magnitude < 1e-6) return fmt::format("{:.1f} ns", seconds * 1e9);
  if (magnitude < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (magnitude < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string format_count(double count) {
  constexpr std::array<const char*, 6> kPrefixes{"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  while (std::abs(count) >= 1000 && prefix + 1 < kPrefixes.size()) count /= 1000, ++prefix;
  return prefix == 0 ? fmt::format("{:g}", count)
                     : fmt::format("{:.2f}{}", count, kPrefixes[prefix]);
}

}  // namespace moetwin
