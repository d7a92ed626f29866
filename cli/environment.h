#pragma once
// Where a run was made: for report.json's `environment`, which no comparison of results includes.

#include <json/value.h>

#include <iosfwd>

namespace moetwin {

/// Program version, host, processor, instruction set of the reference arithmetic, kernel, time in
/// UTC.
Json::Value environment_json();
/// Whether the stream is the process's stderr or stdout on a terminal.
bool is_terminal(const std::ostream& stream);

}  // namespace moetwin
