#pragma once
// Bars and sparklines for a screen.

#include <string>
#include <vector>

namespace moetwin {

/// How a screen shows things.
struct ScreenStyle {
  bool unicode = true;  ///< block characters; otherwise # and digits
};

/// A bar for `share` (0 to 1, clamped) of `width` columns; eighths of a column with unicode. Not
/// padded.
std::string bar(double share, int width, const ScreenStyle& style);

/// One column per value, of at most `width`: when there are more values, each column is the largest
/// of its stretch, so that a hot one shows. Heights are relative to `full`.
std::string sparkline(const std::vector<double>& values, int width, double full,
                      const ScreenStyle& style);

/// Columns that UTF-8 text takes (none of ours is wider than one).
int columns(const std::string& text);

/// `text` with spaces up to `width` columns.
std::string left(const std::string& text, int width);
std::string right(const std::string& text, int width);

}  // namespace moetwin
