#pragma once
// Which runs a sweep has: the values of its keys, combined.

#include <string>
#include <utility>
#include <vector>

namespace moetwin {

/// One key and the values it takes, each as --set takes it.
struct Axis {
  std::string key;
  std::vector<std::string> values;
  bool operator==(const Axis&) const = default;
};

/// "key=a,b,c". A comma inside brackets, braces or quotes belongs to a value:
/// "data.files=[a,b],[c]" has two. Throws Error(configuration) where there is no key, an empty
/// value or the same twice.
Axis parse_axis(const std::string& text);

enum class Combination { grid, list };

/// The overrides of every point: each combination of the axes' values, the last axis fastest; or,
/// as a list, the i-th values of all axes together. Throws Error(configuration) where a key stands
/// twice or the axes of a list differ in length.
std::vector<std::vector<std::string>> sweep_points(const std::vector<Axis>& axes,
                                                   Combination combination);

}  // namespace moetwin
