#pragma once
// Runs a shipped scenario as a user would (`moetwin run`), in a child process, and reads its
// report.

#include <json/json.h>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/program.h"
#include "tests/support/in_child.h"
#include "tests/support/temporary_directory.h"

namespace moetwin::test {

inline std::string scenario_path(const std::string& name) {
  return MOETWIN_SOURCE_SCENARIOS "/" + name;
}

inline std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Exit code of `moetwin run scenarios/NAME --out DIRECTORY --quiet OPTIONS...`, with what it wrote
/// to stderr.
struct RunOutcome {
  int exit_code = 0;
  std::string errors;
};
inline RunOutcome run_scenario(const std::string& name, const std::string& directory,
                               std::vector<std::string> options = {}) {
  std::vector<std::string> arguments{"run", scenario_path(name), "--out", directory, "--quiet"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  ChildLimits limits;
  limits.timeout = std::chrono::minutes(9);
  const std::string result = in_child(
      [&] {
        std::ostringstream out, err;
        const int code = run_program(arguments, {out, err});
        return std::to_string(code) + "\n" + err.str();
      },
      limits);
  const size_t line = result.find('\n');
  return {std::stoi(result.substr(0, line)), result.substr(line + 1)};
}

inline Json::Value report_of(const std::string& directory) {
  Json::Value report;
  std::istringstream(file_text(directory + "/report.json")) >> report;
  return report;
}

/// report.json without what may differ between two equal runs (semantics 9).
inline std::string comparable_report(const std::string& directory) {
  Json::Value report = report_of(directory);
  report.removeMember("wall_seconds");
  report.removeMember("environment");
  return report.toStyledString();
}

}  // namespace moetwin::test
