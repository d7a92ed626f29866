// Every shipped scenario runs on the modelled cluster, and its report adds up.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>

#include "tests/scenarios/run_scenario.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

std::vector<std::string> shipped() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(MOETWIN_SOURCE_SCENARIOS)) {
    const std::string name = file.path().filename().string();
    if (name.ends_with(".json") && !name.ends_with(".schema.json")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Paths of numbers that are none: JSON has no NaN, so they are null where a number belongs.
double sum_of(const Json::Value& parts) {
  double sum = 0;
  for (const Json::Value& part : parts) {
    REQUIRE(part.isNumeric());
    sum += part.asDouble();
  }
  return sum;
}

}  // namespace

TEST_CASE("every shipped scenario runs without numbers, and the parts of its steps are the step",
          "[P208]") {
  const TemporaryDirectory directory;
  const auto names = shipped();
  CHECK(names.size() >= 20);
  for (const std::string& name : names) {
    INFO(name);
    const std::string out = directory / name;
    const RunOutcome ran =
        run_scenario(name, out, {"--numerics", "none", "--set", "training_config.steps=2"});
    CAPTURE(ran.errors);
    REQUIRE(ran.exit_code == 0);
    Json::Value report;
    std::istringstream(file_text(out + "/report.json")) >> report;
    CHECK(report["steps_done"] == 2);
    const double step = report["throughput"]["step_seconds_median"].asDouble();
    CHECK(step > 0);
    CHECK(sum_of(report["step_parts_seconds"]) == Approx(step).epsilon(1e-9));
    for (const Json::Value& peak : report["memory"]["peak_bytes_per_rank"])
      CHECK(peak.asDouble() > 0);
    for (const Json::Value& verdict : report["verdicts"]) CHECK(verdict["kind"] != "diverging");
  }
}
