#include <json/reader.h>

#include <catch2/catch.hpp>
#include <sstream>

#include "tests/core/record/recorded_run.h"
#include "tests/support/temporary_directory.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

Json::Value parsed(const std::string& path) {
  Json::Value value;
  std::istringstream in(file_bytes(path));
  in >> value;
  return value;
}

}  // namespace

TEST_CASE("timeline.json is a Chrome trace of the asked steps, by default the last") {
  const TemporaryDirectory dir;
  MadeUp made;
  made.scenario.training_config.steps = 3;
  Recorder recorder(made.scenario, made.grid(), made.info(dir.path()));
  CHECK(recorder.wants_detail(3));
  CHECK_FALSE(recorder.wants_detail(2));
  made.run(recorder, 1, 3);
  recorder.finish({});
  const Json::Value trace = parsed(dir / "timeline.json");
  std::map<std::string, int> kinds;
  for (const Json::Value& event : trace["traceEvents"]) {
    ++kinds[event["ph"].asString()];
    if (event["ph"] != "X" || event["pid"] != 1 || event["name"] != "all_to_all_v") continue;
    CHECK(event["tid"] == 2);
    CHECK(event["ts"].asDouble() == 2.45e6);  // step 3 begins at 2 s
    CHECK(event["dur"].asDouble() == 0.25e6);
    CHECK(event["args"]["group"] == "ep");
    CHECK(event["args"]["phase"] == "backward");
    CHECK(event["args"]["step"] == 3);
  }
  CHECK(kinds["X"] == 4 * 4);
  // A name for each process and for its host and two streams, and one for the file.
  CHECK(kinds["M"] == 4 * 4 + 1);
}

TEST_CASE("timeline steps as asked, at most 64 ranks") {
  const TemporaryDirectory dir;
  MadeUp made(128, 2, 4, 1);
  made.scenario.output.timeline_steps = {1, 3};
  Recorder recorder(made.scenario, made.grid(), made.info(dir.path()));
  CHECK(recorder.wants_detail(3));
  CHECK_FALSE(recorder.wants_detail(10));
  made.run(recorder, 1, 3);
  recorder.finish({});
  int64_t events = 0, highest = 0;
  const Json::Value trace = parsed(dir / "timeline.json");
  for (const Json::Value& event : trace["traceEvents"])
    if (event["ph"] == "X") ++events, highest = std::max(highest, event["pid"].asInt64());
  CHECK(events == 2 * 64 * 4);
  CHECK(highest == 63);
}
