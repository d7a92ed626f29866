#pragma once
// Long series made short enough to draw, without hiding what stands out.

#include <json/value.h>

#include <cstdint>
#include <vector>

namespace moetwin {

/// Rows [first, last) that become one point.
struct Bucket {
  size_t first = 0, last = 0;
};

/// At most `most` buckets of equal width over `rows` rows; the last may be shorter.
std::vector<Bucket> buckets(size_t rows, size_t most);

/// {"x": first steps, "y": means, "low", "high", "bucket": rows of one}; low and high only where a
/// bucket has more than one row. NaN becomes null.
Json::Value sampled(const std::vector<double>& steps, const std::vector<double>& values,
                    size_t most);

/// A number of at most `digits` significant digits, so that text stays short; null when not finite.
Json::Value rounded(double value, int digits = 5);

}  // namespace moetwin
