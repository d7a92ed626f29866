#include <catch2/catch.hpp>
#include <cstdio>
#include <sstream>

#include "core/record/summary.h"
#include "tests/core/record/recorded_run.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Contains;

namespace {

Report report_of(const MadeUp& made, RunInfo info, int64_t steps) {
  Recorder recorder(made.scenario, made.grid(), std::move(info));
  made.run(recorder, 1, steps);
  return recorder.finish({});
}

}  // namespace

TEST_CASE("the summary says what seed 001 tells a user to watch, on one screen") {
  MadeUp made(8, 2, 8, 2);
  made.scenario.name = "quickstart";
  const std::string text = summary(report_of(made, made.info(""), 10));
  CHECK_THAT(text, Contains("quickstart on sim: 8 GPUs: DP 4 x EP 2, A100-SXM4-80GB (modelled)"));
  CHECK_THAT(text, Contains("loss 4.9000 -> 4.0000 nats"));
  CHECK_THAT(text, Contains("512 tokens/s") && Contains("8.0 samples/s") && Contains("MFU"));
  CHECK_THAT(text, Contains("mean of 8 steps, 2 warm-up steps left out"));
  CHECK_THAT(text, Contains("Where a step of 1.00 s goes"));
  CHECK_THAT(text, Contains("+ 50.00 ms hidden"));
  CHECK_THAT(text, Contains("EP group 3 (ranks 6-7)") && Contains("17.00 MiB"));
  CHECK_THAT(text, Contains("load CV") && Contains("mean routing probability"));
  CHECK_THAT(text, Contains("balance 1.1 x 0.01 = 0.011"));
  std::istringstream in(text);
  int lines = 0;
  for (std::string line; std::getline(in, line); ++lines) {
    INFO(line);
    CHECK(columns(line) <= kSummaryColumns);
  }
  CHECK(lines <= 45);
  if (std::getenv("MOETWIN_SHOW")) std::fputs(text.c_str(), stdout);
}

TEST_CASE("large jobs keep to one screen and to its width, and say what is wrong") {
  MadeUp made(1024, 64, 64, 16);
  RunInfo info = made.info("");
  info.device.memory_bytes = int64_t{1} << 30;
  info.notes = {
      "routing: numerics are off, so `uniform` counts stand in for the learned router, "
      "and this note is long enough to need a second line"};
  const std::string text = summary(report_of(made, info, 1), {false});
  CHECK_THAT(text, Contains("12 more EP groups"));
  CHECK_THAT(text, Contains("(8 of 16, the most uneven)"));
  CHECK_THAT(text, Contains("out_of_memory") && Contains("What helps"));
  std::istringstream in(text);
  int lines = 0;
  for (std::string line; std::getline(in, line); ++lines) {
    INFO(line);
    CHECK(columns(line) <= kSummaryColumns);
    // Without unicode every byte is a column.
    CHECK(static_cast<int>(line.size()) == columns(line));
  }
  CHECK(lines <= 55);
  if (std::getenv("MOETWIN_SHOW")) std::fputs(text.c_str(), stdout);
}

TEST_CASE("of layers alike the first few are told, and how many there are") {
  MadeUp made(8, 2, 4, 16);
  Report report = report_of(made, made.info(""), 1);
  report.verdicts.clear();
  for (int64_t layer = 0; layer < 16; ++layer) {
    Verdict v;
    v.kind = "imbalanced";
    v.layer = layer;
    v.evidence = "load CV 1.20";
    v.advice = "raise the balance loss";
    report.verdicts.push_back(v);
  }
  const std::string text = summary(report, {false});
  CHECK_THAT(text, Contains("layer 2") && Contains("And in 13 more layers"));
  const size_t evidence = text.find("load CV 1.20"), help = text.find("raise the balance loss");
  CHECK(evidence < help);
  CHECK(text.find("raise the balance loss", help + 1) == std::string::npos);
  size_t told = 0;
  for (size_t at = evidence; at != std::string::npos; at = text.find("load CV 1.20", at + 1))
    ++told;
  CHECK(told == 3);
}

TEST_CASE("bars and sparklines") {
  CHECK(bar(0.5, 4, {}) == "██");
  CHECK(bar(0.28125, 4, {}) == "█▏");  // 9 eighths of a column
  CHECK(bar(2, 3, {}) == "███");
  CHECK(bar(-1, 3, {}).empty());
  CHECK(bar(std::nan(""), 3, {}).empty());
  CHECK(bar(0.5, 4, {false}) == "##");
  CHECK(sparkline({0, 1, 2}, 3, 2, {}) == "▁▅█");
  // Six values on three columns: each shows the larger of two.
  CHECK(sparkline({0, 2, 0, 0, 1, 0}, 3, 2, {}) == "█▁▅");
  CHECK(sparkline({0, 2, 1}, 8, 2, {false}) == "095");
  CHECK(columns("█▁é") == 3);
}
