#pragma once

#include <string>
#include <vector>

namespace moetwin {

/// Fields of a line; "a ""quoted"" field" as in RFC 4180.
std::vector<std::string> fields_of(const std::string& line);

}  // namespace moetwin
