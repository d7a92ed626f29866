// Same scenario, same seed: the same bytes, whatever the number of threads; the network's fidelity
// changes times, never losses.

#include <catch2/catch.hpp>

#include "tests/scenarios/run_scenario.h"

using namespace moetwin::test;

namespace {

std::vector<std::string> short_run(std::vector<std::string> more) {
  std::vector<std::string> options{"--set", "training_config.steps=6",
                                   "--set", "training_config.validation_sequences=16",
                                   "--set", "training_config.schedule.warmup_steps=2"};
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

/// Columns of steps.csv up to grad_norm: what training gave, without times.
std::string losses(const std::string& directory) {
  std::istringstream in(file_text(directory + "/steps.csv"));
  std::string text, line;
  while (std::getline(in, line)) {
    size_t end = 0;
    for (int column = 0; column < 7; ++column) end = line.find(',', end + 1);
    text += line.substr(0, end) + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("two runs and one or two threads give the same bytes") {
  const TemporaryDirectory directory;
  const auto run = [&](const std::string& name, const std::vector<std::string>& options) {
    const std::string out = directory.path() + "/" + name;
    const RunOutcome outcome = run_scenario("quickstart.json", out, short_run(options));
    INFO(outcome.errors);
    REQUIRE(outcome.exit_code == 0);
    return out;
  };
  const std::string first = run("a", {"--threads", "1"});
  for (const auto& [name, options] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"b", {"--threads", "1"}}, {"c", {"--threads", "2"}}}) {
    const std::string again = run(name, options);
    for (const char* file : {"steps.csv", "routing.csv", "probe.csv", "timeline.json"})
      CHECK((file_text(first + "/" + file) == file_text(again + "/" + file)));
    CHECK((comparable_report(first) == comparable_report(again)));
  }
  const std::string flow = run("flow", {"--fidelity", "flow"});
  CHECK(losses(first) == losses(flow));
  CHECK((file_text(first + "/routing.csv") == file_text(flow + "/routing.csv")));
}

TEST_CASE("overlap of the exchange changes no loss by more than 1e-6") {
  const TemporaryDirectory directory;
  std::vector<double> last;
  for (const char* overlap : {"false", "true"}) {
    const std::string out = directory.path() + "/" + overlap;
    const RunOutcome outcome = run_scenario(
        "quickstart.json", out,
        short_run(
            {"--set",
             std::string("distributed_config.comm_optimization.all_to_all_overlap=") + overlap}));
    INFO(outcome.errors);
    REQUIRE(outcome.exit_code == 0);
    last.push_back(report_of(out)["loss"]["last"].asDouble());
  }
  CHECK(last[0] == Approx(last[1]).margin(1e-6));
}
