#pragma once
// Text files line by line, without copying them.

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "core/base/files.h"

namespace moetwin {

/// Calls body(line, number) for every line that is not empty, without its end, numbered from 1.
template <class Body>
void for_each_line(const MappedFile& file, Body&& body) {
  std::string_view rest(reinterpret_cast<const char*>(file.data()),
                        static_cast<size_t>(file.size()));
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!line.empty()) body(line, number);
  }
}

/// Takes the text up to the next comma off the front of `rest`.
inline std::string_view next_field(std::string_view& rest) {
  const size_t end = std::min(rest.find(','), rest.size());
  const std::string_view field = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return field;
}

/// Whether `text` is one whole number of type T; it is stored in `value`.
template <class T>
bool read_number(std::string_view text, T& value) {
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  return fault == std::errc() && end == text.data() + text.size();
}

}  // namespace moetwin
