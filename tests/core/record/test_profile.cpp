// Which steps a profile is made of, and what a run then writes.
#include <json/reader.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <sstream>

#include "core/record/profile_schedule.h"
#include "core/record/remote.h"
#include "core/record/summary.h"
#include "tests/core/record/recorded_run.h"
#include "tests/support/temporary_directory.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

/// A letter per step from 1 on: '.' untraced, 'w' warm-up, 'R' recorded.
std::string schedule(int64_t wait, int64_t warmup, int64_t active, int64_t repeat, int64_t steps) {
  std::string letters;
  for (int64_t step = 1; step <= steps; ++step)
    letters += ".wR"[static_cast<int>(profile_action({wait, warmup, active, repeat}, step))];
  return letters;
}

Json::Value parsed(const std::string& path) {
  Json::Value value;
  std::istringstream in(file_bytes(path));
  in >> value;
  return value;
}

}  // namespace

TEST_CASE("steps are counted as torch.profiler.schedule does") {
  // torch.profiler.schedule(wait=1, warmup=1, active=3), broken off after five steps.
  CHECK(schedule(1, 1, 3, 1, 8) == ".wRRR...");
  // The same with its default repeat=0.
  CHECK(schedule(1, 1, 3, 0, 12) == ".wRRR.wRRR.w");
  CHECK(schedule(2, 0, 1, 2, 9) == "..R..R...");
  CHECK(schedule(0, 0, 1, 1, 3) == "R..");
  CHECK(schedule(5, 5, 0, 0, 3) == "...");
}

TEST_CASE("warm-up steps are traced and not shown; the timeline has the recorded ones") {
  Scenario s;
  s.training_config.steps = 10;
  s.profile = {.wait = 1, .warmup = 1, .active = 2, .repeat = 1};
  CHECK_FALSE(traced(s, 1));
  CHECK(traced(s, 2));
  CHECK_FALSE(in_timeline(s, 2));
  CHECK(in_timeline(s, 3));
  CHECK(in_timeline(s, 4));
  CHECK_FALSE(traced(s, 10));  // the default timeline gives way to the profile
  s.output.timeline_steps = {8};
  CHECK(in_timeline(s, 8));  // one that is asked for does not
  CHECK(in_timeline(s, 3));
  const RemoteSink other_process(s, [](const std::string&) {});
  CHECK(other_process.wants_detail(2));
  CHECK_FALSE(other_process.wants_detail(9));
}

TEST_CASE("a profiled run leaves the table of its recorded steps in three places") {
  const TemporaryDirectory dir;
  MadeUp made;
  made.scenario.profile = {.wait = 1, .warmup = 1, .active = 3, .repeat = 1};
  Recorder recorder(made.scenario, made.grid(), made.info(dir.path()));
  made.run(recorder, 1, 10);
  const Report report = recorder.finish({});
  // Each of 4 ranks in each of 3 steps: gemm 0.2 s forward and 0.3 s backward, an exchange of 0.25.
  REQUIRE(report.ops.steps == std::vector<int64_t>{3, 4, 5});
  REQUIRE(report.ops.by_op.size() == 2);
  CHECK(report.ops.by_op[0].sums.calls == 2 * 12);
  CHECK(report.ops.by_op[0].sums.seconds == Approx(0.5 * 12));
  CHECK(report.ops.by_op[1].sums.seconds == Approx(0.25 * 12));

  const Json::Value profile = parsed(dir / "report.json")["profile"];
  CHECK(profile["ops"][0]["op"] == "gemm");
  CHECK(profile["ops"][0]["share"].asDouble() == Approx(0.5 / 0.75));
  CHECK(profile["device_seconds"].asDouble() == Approx(9));
  std::istringstream csv(file_bytes(dir / "profile.csv"));
  int lines = 0;
  for (std::string line; std::getline(csv, line);) ++lines;
  CHECK(lines == 1 + 3);
  CHECK(summary(report, {}).find("Ops by device time (steps 3-5, 4 ranks together") !=
        std::string::npos);

  std::map<int64_t, int> shown;
  const Json::Value trace = parsed(dir / "timeline.json");
  for (const Json::Value& event : trace["traceEvents"])
    if (event["ph"] == "X") ++shown[event["args"]["step"].asInt64()];
  CHECK(shown == std::map<int64_t, int>{{3, 16}, {4, 16}, {5, 16}});
}

TEST_CASE("without a profile there is no table") {
  const TemporaryDirectory dir;
  const MadeUp made;
  Recorder recorder(made.scenario, made.grid(), made.info(dir.path()));
  made.run(recorder, 1, 10);
  const Report report = recorder.finish({});
  CHECK(report.ops.by_op.empty());
  CHECK_FALSE(parsed(dir / "report.json").isMember("profile"));
  CHECK_FALSE(std::filesystem::exists(dir / "profile.csv"));
  CHECK(summary(report, {}).find("Ops by device time") == std::string::npos);
}
