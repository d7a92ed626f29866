#include "core/record/bars.h"

#include <algorithm>
#include <cmath>

namespace moetwin {

namespace {

// Left blocks of one to eight eighths, and lower blocks likewise.
constexpr const char* kAcross[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
constexpr const char* kUp[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

}  // namespace

std::string bar(double share, int width, const ScreenStyle& style) {
  share = std::clamp(std::isfinite(share) ? share : 0.0, 0.0, 1.0);
  std::string text;
  if (!style.unicode) return std::string(static_cast<size_t>(std::lround(share * width)), '#');
  const long eighths = std::lround(share * width * 8);
  for (long i = 0; i < eighths / 8; ++i) text += kAcross[8];
  return text + kAcross[eighths % 8];
}

std::string sparkline(const std::vector<double>& values, int width, double full,
                      const ScreenStyle& style) {
  const size_t shown = std::min(values.size(), static_cast<size_t>(width));
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    const size_t begin = i * values.size() / shown, end = (i + 1) * values.size() / shown;
    const double most = *std::max_element(values.begin() + static_cast<long>(begin),
                                          values.begin() + static_cast<long>(end));
    const double share = full > 0 ? std::clamp(most / full, 0.0, 1.0) : 0;
    if (style.unicode)
      text += kUp[std::lround(share * 7)];
    else
      text += static_cast<char>('0' + std::lround(share * 9));
  }
  return text;
}

int columns(const std::string& text) {
  // Every byte but the continuation bytes of UTF-8.
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string left(const std::string& text, int width) {
  return text + std::string(static_cast<size_t>(std::max(0, width - columns(text))), ' ');
}

std::string right(const std::string& text, int width) {
  return std::string(static_cast<size_t>(std::max(0, width - columns(text))), ' ') + text;
}

}  // namespace moetwin
