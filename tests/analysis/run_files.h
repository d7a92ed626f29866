#pragma once
// A run directory written by hand, as the record writes one.

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace moetwin::test {

struct RunFiles {
  TemporaryDirectory directory;
  const std::string& path() const { return directory.path(); }

  void report(const std::string& json) { directory.write("report.json", json); }
  /// Rows from step 1 on; `row(step)` gives the values behind the step number.
  void steps(const std::string& columns, int64_t count,
             const std::function<std::vector<double>(int64_t)>& row) {
    std::string text = "step," + columns + "\n";
    for (int64_t step = 1; step <= count; ++step) {
      text += fmt::format("{}", step);
      for (double value : row(step)) text += fmt::format(",{}", value);
      text += "\n";
    }
    directory.write("steps.csv", text);
  }
};

}  // namespace moetwin::test
