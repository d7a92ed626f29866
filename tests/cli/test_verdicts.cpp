// Verdicts of a run: in its report and page, on the screen, and `--stop-on`.

#include <json/json.h>

#include <catch2/catch.hpp>
#include <sstream>

#include "analysis/result/csv_table.h"
#include "cli/machines.h"
#include "tests/cli/run.h"
#include "tests/support/in_child.h"

using namespace moetwin;
using Catch::Matchers::Contains;

namespace {

// Scripted loads without numbers: thousands of steps a second.
const char* const kScripted = R"({
  "model_config": {"hidden_size": 8, "num_layers": 2, "num_attention_heads": 2, "ffn_hidden_size": 8,
    "vocab_size": 17, "sequence_length": 512,
    "moe_layer_config": {"num_experts": 8, "top_k": 1, "moe_every_k_layers": 2,
                         "expert_hidden_size": 8}},
  "distributed_config": {"world_size": 4, "data_parallel_size": 2, "expert_parallel_size": 2},
  "training_config": {"steps": 900, "numerics": "none"},
  "routing": {"without_numerics": "W9", "workload": {"period_steps": 20, "amplitude": 0.8}},
  "data": {"format": "synthetic"},
  "cluster": {"profile": "toy-8gpu"}
})";

Ran run_scripted(const Folder& folder, const std::vector<std::string>& options) {
  std::vector<std::string> arguments{"run", folder.write("scripted.json", kScripted), "--out",
                                     folder.file("out")};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const std::string bytes = test::in_child([&] {
    const Ran ran = run(arguments);
    return std::to_string(ran.code) + "\n" + std::to_string(ran.out.size()) + "\n" + ran.out +
           ran.err;
  });
  std::istringstream in(bytes);
  size_t code = 0, out = 0;
  in >> code >> out;
  const size_t begin = static_cast<size_t>(in.tellg()) + 1;
  return {static_cast<int>(code), bytes.substr(begin, out), bytes.substr(begin + out)};
}

Json::Value report_in(const Folder& folder) {
  Json::Value report;
  std::istringstream(folder.read("out/report.json")) >> report;
  return report;
}

const Json::Value& verdict(const Json::Value& report, const std::string& kind) {
  for (const Json::Value& v : report["verdicts"])
    if (v["kind"] == kind) return v;
  static const Json::Value none;
  return none;
}

}  // namespace

TEST_CASE("--stop-on ends the run after a whole step, with code 7 and what was found", "[P229]") {
  const Folder folder("stop-on");
  const Ran ran = run_scripted(folder, {"--quiet", "--stop-on", "diverging,oscillating"});
  INFO(ran.err);
  CHECK(ran.code == 7);
  CHECK_THAT(ran.err, Contains("stopped by --stop-on oscillating after step") &&
                          Contains(" of 900") && Contains("layer 1") && Contains("from step 1,") &&
                          Contains("period 20"));
  const Json::Value report = report_in(folder);
  const int64_t done = report["steps_done"].asInt64();
  // The first 300 steps make no verdict; it must hold for ten checks, 16 steps apart.
  CHECK(done > 300);
  CHECK(done < 600);
  CHECK_THAT(ran.err, Contains("after step " + std::to_string(done)));
  CHECK(verdict(report, "oscillating")["period_steps"].asDouble() == Approx(20).epsilon(0.02));
  // The record is whole: every step has its row, and throughput is over the steps there were.
  const CsvTable steps(folder.file("out/steps.csv"));
  REQUIRE(steps.rows() == static_cast<size_t>(done));
  double seconds = 0;
  const int64_t warm_up = report["throughput"]["warmup_steps_excluded"].asInt64();
  for (auto i = static_cast<size_t>(warm_up); i < steps.rows(); ++i)
    seconds += steps.column("step_seconds")[i];
  const double tokens = 8 * 512 * static_cast<double>(done - warm_up);
  CHECK(report["throughput"]["tokens_per_second"].asDouble() ==
        Approx(tokens / seconds).epsilon(1e-9));
  CHECK(std::filesystem::exists(folder.file("out/report.html")));
}

TEST_CASE("--stop-on leaves a run alone that shows something else; live verdicts are said") {
  const Folder folder("stop-on-other");
  const Ran ran = run_scripted(folder, {"--stop-on", "collapsed"});
  CHECK(ran.code == 0);
  CHECK(report_in(folder)["steps_done"] == 900);
  CHECK_THAT(ran.err, Contains("oscillating: layer 1"));
  CHECK_THAT(ran.out, Contains("Verdicts") && Contains("oscillating") &&
                          Contains("period 20 steps") && Contains("What helps: ") &&
                          Contains("report.html"));
}

TEST_CASE("--stop-on names verdicts that there are") {
  const Folder folder("stop-on-unknown");
  const Ran ran = run_scripted(folder, {"--stop-on", "wobbling"});
  CHECK(ran.code == 2);
  CHECK_THAT(ran.err, Contains("wobbling") && Contains("oscillating") && Contains("collapsed"));
  CHECK_FALSE(std::filesystem::exists(folder.file("out")));
}

TEST_CASE("the more uneven the load, the longer the step", "[P180]") {
  double last = 0;
  for (const char* violation : {"0", "0.5", "1", "3"}) {
    CAPTURE(violation);
    const Folder folder("uneven");
    // Wide experts, so that the fullest of them is what the others wait for.
    const Ran ran =
        run_scripted(folder, {"--quiet", "--set", "routing.without_numerics=W8", "--set",
                              std::string("routing.workload.max_violation=") + violation, "--set",
                              "model_config.moe_layer_config.expert_hidden_size=4096", "--set",
                              "training_config.steps=6"});
    REQUIRE(ran.code == 0);
    const Json::Value report = report_in(folder);
    CHECK(report["routing"]["layers"][0]["imbalance_experts"].asDouble() ==
          Approx(1 + std::stod(violation)).epsilon(0.02));
    const double seconds = report["throughput"]["step_seconds_median"].asDouble();
    CHECK(seconds > last);
    last = seconds;
  }
}

TEST_CASE("many ranks message by message are said to take long", "[P223]") {
  Scenario scenario;
  scenario.distributed_config.world_size = 1024;
  CHECK(flow_warning(scenario).empty());
  scenario.cluster.fidelity = "flow";
  CHECK_THAT(flow_warning(scenario), Contains("1024 ranks") && Contains("fluid"));
  scenario.distributed_config.world_size = 64;
  CHECK(flow_warning(scenario).empty());
}

TEST_CASE("one hardware queue and overlap are said not to go together", "[P187]") {
  Scenario scenario;
  CommOptimization& comm = scenario.distributed_config.comm_optimization;
  CHECK(connections_warning(scenario, "1").empty());
  comm.all_to_all_overlap = true;
  CHECK_THAT(connections_warning(scenario, "1"),
             Contains("CUDA_DEVICE_MAX_CONNECTIONS") && Contains("all_to_all_overlap"));
  CHECK(connections_warning(scenario, "32").empty());
  CHECK(connections_warning(scenario, nullptr).empty());
}

TEST_CASE("a collapsed router is named with its layer, share and entropy", "[P177]") {
  const Folder folder("verdict-collapsed");
  const Ran ran = run_scripted(
      folder, {"--quiet", "--set", "routing.without_numerics=W1", "--set",
               "routing.workload.hot_fraction=1", "--set", "training_config.steps=400"});
  CHECK(ran.code == 0);
  const Json::Value report = report_in(folder);
  const Json::Value& collapsed = verdict(report, "collapsed");
  REQUIRE_FALSE(collapsed.isNull());
  CHECK(collapsed["layer"] == 1);
  const Json::Value& layer = report["routing"]["layers"][0];
  double most = 0;
  for (const Json::Value& share : layer["load_share"]) most = std::max(most, share.asDouble());
  CHECK(most == 1);
  CHECK(layer["entropy"].asDouble() == 0);
  CHECK(report["gpus_per_node"] == 8);
}
