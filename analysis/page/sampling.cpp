#include "analysis/page/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moetwin {

std::vector<Bucket> buckets(size_t rows, size_t most) {
  std::vector<Bucket> list;
  const size_t width = std::max<size_t>(1, (rows + most - 1) / most);
  for (size_t at = 0; at < rows; at += width) list.push_back({at, std::min(rows, at + width)});
  return list;
}

Json::Value rounded(double value, int digits) {
  if (!std::isfinite(value)) return {};
  if (value == 0) return Json::Value(0);
  const double scale =
      std::pow(10.0, digits - 1 - static_cast<int>(std::floor(std::log10(std::abs(value)))));
  const double whole = std::round(value * scale);
  return scale >= 1 ? Json::Value(whole / scale) : Json::Value(whole * (1 / scale));
}

Json::Value sampled(const std::vector<double>& steps, const std::vector<double>& values,
                    size_t most) {
  Json::Value json(Json::objectValue);
  const std::vector<Bucket> list = buckets(steps.size(), most);
  const size_t width = list.empty() ? 1 : list.front().last - list.front().first;
  json["bucket"] = Json::UInt64(width);
  for (const char* key : {"x", "y"}) json[key] = Json::Value(Json::arrayValue);
  for (const Bucket& b : list) {
    double sum = 0, low = std::numeric_limits<double>::infinity(), high = -low;
    int64_t known = 0;
    for (size_t i = b.first; i < b.last; ++i) {
      if (!std::isfinite(values[i])) continue;
      sum += values[i];
      low = std::min(low, values[i]);
      high = std::max(high, values[i]);
      ++known;
    }
    json["x"].append(Json::Int64(steps[b.first]));
    json["y"].append(known ? rounded(sum / static_cast<double>(known)) : Json::Value());
    if (width == 1) continue;
    json["low"].append(rounded(low));
    json["high"].append(rounded(high));
  }
  return json;
}

}  // namespace moetwin
