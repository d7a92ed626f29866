#pragma once
// JSON as text with the same bytes everywhere: keys in ascending order, two spaces, numbers the
// shortest that read back to the same value, NaN and infinities as null.

#include <json/value.h>

#include <string>

namespace moetwin {

/// With a newline at the end.
std::string json_text(const Json::Value& value);

/// A JSON string with its quotes.
std::string json_string(const std::string& text);

}  // namespace moetwin
