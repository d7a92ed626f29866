#include "analysis/sweep/points.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/error.h"

namespace moetwin {

namespace {

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == text.npos ? "" : text.substr(first, last - first + 1);
}

std::vector<std::string> split_values(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' && (i == 0 || text[i - 1] != '\\')) quoted = !quoted;
    if (!quoted) depth += (c == '[' || c == '{') - (c == ']' || c == '}');
    if (c == ',' && depth == 0 && !quoted)
      values.emplace_back();
    else
      values.back() += c;
  }
  for (std::string& value : values) value = trimmed(value);
  return values;
}

}  // namespace

Axis parse_axis(const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorClass::configuration,
                fmt::format("--over {}: {}; legal: key=value,value,...", text, why));
  };
  const size_t equals = text.find('=');
  if (equals == text.npos) refuse("there is no =");
  Axis axis{trimmed(text.substr(0, equals)), split_values(text.substr(equals + 1))};
  if (axis.key.empty()) refuse("there is no key before =");
  std::set<std::string> seen;
  for (const std::string& value : axis.values) {
    if (value.empty()) refuse("a value is empty");
    if (!seen.insert(value).second) refuse(fmt::format("{} stands there twice", value));
  }
  return axis;
}

std::vector<std::vector<std::string>> sweep_points(const std::vector<Axis>& axes,
                                                   Combination combination) {
  std::set<std::string> keys;
  for (const Axis& axis : axes)
    if (!keys.insert(axis.key).second)
      throw Error(ErrorClass::configuration, fmt::format("--over {}: the key stands there twice; "
                                                         "name all its values in one --over",
                                                         axis.key));
  std::vector<std::vector<std::string>> points(1);
  if (combination == Combination::list) {
    const size_t count = axes.empty() ? 1 : axes[0].values.size();
    points.resize(count);
    for (const Axis& axis : axes) {
      if (axis.values.size() != count)
        throw Error(
            ErrorClass::configuration,
            fmt::format("--list takes the values of all keys together, so each --over needs "
                        "as many: {} has {}, {} has {}",
                        axes[0].key, count, axis.key, axis.values.size()));
      for (size_t i = 0; i < count; ++i) points[i].push_back(axis.key + "=" + axis.values[i]);
    }
    return points;
  }
  for (const Axis& axis : axes) {
    std::vector<std::vector<std::string>> longer;
    for (const std::vector<std::string>& point : points)
      for (const std::string& value : axis.values) {
        longer.push_back(point);
        longer.back().push_back(axis.key + "=" + value);
      }
    points = std::move(longer);
  }
  return points;
}

}  // namespace moetwin
