#pragma once
// Files named on the command line.

#include <json/value.h>

#include <string>

namespace moetwin {

/// A whole file. Throws Error(configuration) naming path and reason when it cannot be read.
std::string text_file(const std::string& path);
/// The same, parsed; syntax errors name the file.
Json::Value json_file(const std::string& path);

}  // namespace moetwin
