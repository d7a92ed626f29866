// 200 steps of the quickstart in 16 bits end within 2% of the loss in fp32.

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/scenarios/run_scenario.h"

using namespace moetwin::test;

TEST_CASE("the quickstart in bf16 and fp16 ends within 2% of fp32", "[C19]") {
  const TemporaryDirectory directory;
  const auto last_loss = [&](const std::string& dtype) {
    const std::string out = directory / dtype;
    const RunOutcome run = run_scenario(
        "quickstart.json", out,
        {"--set", "training_config.dtype=" + dtype, "--set", "training_config.steps=200"});
    INFO(run.errors);
    REQUIRE(run.exit_code == 0);
    const Json::Value report = report_of(out);
    REQUIRE(report["steps_done"] == 200);
    // The training loss of one batch is noisy; that on the validation sequences is of 32.
    return std::make_pair(report["loss"]["last"].asDouble(),
                          report["loss"]["validation_last"].asDouble());
  };
  const auto [wide, wide_validation] = last_loss("fp32");
  CHECK(wide < 3.5);  // it has learnt
  for (const char* dtype : {"bf16", "fp16"}) {
    CAPTURE(dtype);
    const auto [narrow, narrow_validation] = last_loss(dtype);
    CHECK(narrow == Approx(wide).epsilon(0.02));
    CHECK(narrow_validation == Approx(wide_validation).epsilon(0.02));
  }
}
