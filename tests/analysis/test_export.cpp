#include <json/reader.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <sstream>

#include "analysis/export/crc32c.h"
#include "analysis/export/json_lines.h"
#include "analysis/export/tensorboard.h"
#include "tests/analysis/run_files.h"
#include "tests/cli/run.h"

namespace moetwin {

using Catch::Contains;

TEST_CASE("CRC-32C has the check values of RFC 3720") {
  CHECK(crc32c("123456789") == 0xe3069283u);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
}

TEST_CASE("a record is length, checksum, bytes, checksum") {
  const std::string record = event_record("abc");
  REQUIRE(record.size() == 8 + 4 + 3 + 4);
  CHECK(record.substr(0, 8) == std::string("\x03\0\0\0\0\0\0\0", 8));
  CHECK(record.substr(12, 3) == "abc");
  uint32_t stored = 0;
  std::memcpy(&stored, record.data() + 15, 4);
  const uint32_t crc = crc32c("abc");
  CHECK(stored == ((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

TEST_CASE("a scalar event is the protobuf message, byte by byte") {
  // Event{1: 1.0, 2: 300, 5: Summary{1: Value{1: "a", 2: 0.5f}}}; 300 is the varint ac 02.
  const std::string expected(
      "\x09\0\0\0\0\0\0\xf0\x3f\x10\xac\x02\x2a\x0a\x0a\x08\x0a\x01"
      "a\x15\0\0\0\x3f",
      24);
  CHECK(scalar_event(1.0, 300, "a", 0.5) == expected);
}

TEST_CASE("a run becomes one event file, always with the same bytes, and JSON lines") {
  test::RunFiles files;
  files.report(R"({"schema": "moetwin-report/1", "scenario": "made"})");
  files.steps("loss,step_seconds", 2, [](int64_t s) {
    return std::vector<double>{3.0 / static_cast<double>(s), 0.5};
  });
  files.directory.write("routing.csv",
                        "step,layer,rank,expert,assigned,kept\n1,0,all,0,3,3\n1,0,all,1,1,1\n"
                        "2,0,all,0,2,2\n2,0,all,1,2,2\n");
  const Run made = read_run(files.path());
  const std::string events = tensorboard_events(made);
  CHECK(events == tensorboard_events(made));
  CHECK_THAT(events,
             Contains("brain.Event:2") && Contains("steps/loss") && Contains("layer_0/load_cv"));
  const std::string lines = json_lines(made);
  std::istringstream in(lines);
  std::string line;
  std::vector<Json::Value> read;
  while (std::getline(in, line)) {
    std::istringstream one(line);
    Json::Value value;
    REQUIRE(Json::parseFromStream(Json::CharReaderBuilder(), one, &value, nullptr));
    read.push_back(value);
  }
  REQUIRE(read.size() == 2);
  CHECK(read[0]["step"] == 1);
  CHECK(read[0]["loss"] == 3);
  CHECK(read[1]["loss"].asDouble() == 1.5);
  CHECK(read[1]["step_seconds"].asDouble() == 0.5);
  CHECK(read[0]["layers"][0]["counts"][0] == 3);
  CHECK(read[0]["layers"][0]["load_cv"].asDouble() == 0.5);  // 3 and 1: mean 2, deviation 1
  CHECK(read[0]["layers"][0]["imbalance_experts"].asDouble() == 1.5);
  CHECK(read[1]["layers"][0]["entropy"].asDouble() == Approx(1));
  const Ran ran = run({"report", files.path(), "--tensorboard", files.directory / "logs"});
  CHECK(ran.code == 0);
  CHECK(test::file_bytes(files.directory / "logs/events.out.tfevents.0000000000.moetwin") ==
        events);
}

}  // namespace moetwin
