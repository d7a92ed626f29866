#include <json/reader.h>

#include <catch2/catch.hpp>

#include "analysis/bottleneck.h"
#include "analysis/router_share.h"
#include "tests/analysis/run_files.h"
#include "tests/cli/run.h"

namespace moetwin {
namespace {

using Catch::Contains;

Json::Value parsed(const std::string& text) {
  Json::Value value;
  std::istringstream in(text);
  REQUIRE(Json::parseFromStream(Json::CharReaderBuilder(), in, &value, nullptr));
  return value;
}

/// A report whose step of 1 s has these parts, and more keys behind.
std::string report(const std::string& parts, const std::string& more = "") {
  return R"({"schema": "moetwin-report/1", "scenario": "made", "step_parts_seconds": {)" + parts +
         "}" + (more.empty() ? "" : ", " + more) + "}";
}

std::string first_kind(const std::string& json) {
  test::RunFiles files;
  files.report(json);
  const std::vector<Bottleneck> found = find_bottlenecks(read_run(files.path()));
  REQUIRE(!found.empty());
  CHECK(!found[0].advice.empty());
  return found[0].kind;
}

}  // namespace

TEST_CASE("what takes the step is what bounds it") {
  CHECK(first_kind(report(R"("compute": 0.9, "all_to_all": 0.1)")) == "compute");
  CHECK(first_kind(report(R"("compute": 0.6, "all_to_all": 0.3, "other_communication": 0.1)")) ==
        "communication");
  CHECK(first_kind(report(R"("compute": 0.7, "host": 0.3)")) == "host");
  CHECK(first_kind(report(R"("compute": 0.7, "bubble": 0.3)")) == "bubble");
  CHECK(first_kind(report(R"("compute": 0.7, "data": 0.3)")) == "data");
  // One rank computes 0.9 s, the others 0.5 s: mean 0.6, so 30% of the step is unevenness.
  CHECK(first_kind(report(R"("compute": 0.6, "idle": 0.4)",
                          R"("step_parts_seconds_per_rank": {"compute": [0.5, 0.9, 0.5, 0.5]})")) ==
        "imbalance");
  CHECK(first_kind(report(R"("compute": 0.9, "idle": 0.1)",
                          R"("memory": {"capacity_bytes": 100, "peak_bytes_per_rank": [50, 95],
                             "classes": {"activations": 70, "parameters": 25}})")) == "memory");
}

TEST_CASE("the router's share of the computing: its ops and the products that are its own",
          "[P102]") {
  const auto op = [](const char* name, double seconds, const char* activity = "compute") {
    ListedOp o;
    o.name = name, o.seconds = seconds, o.activity = activity;
    return o;
  };
  OpLists lists;
  lists[{0, 0}] = {op("gemm", 10),
                   op("gemm", 1),
                   op("router_select", 2),
                   op("accumulate_counts", .25),
                   op("router_losses", .75),
                   op("grouped_gemm", 40),
                   op("all_reduce", 7, "other_communication"),
                   op("router_backward", 3),
                   op("gemm", 4),
                   op("gemm", 5),
                   op("router_input_backward", 1),
                   op("gemm", 20)};
  lists[{0, -1}] = {op("launch", 99, "host")};
  const RouterShare found = router_share(lists);
  CHECK(found.router == 1 + 2 + .25 + .75 + 3 + 4 + 5 + 1);
  CHECK(found.compute == found.router + 10 + 40 + 20);
}

TEST_CASE("communication names its bytes and where they go") {
  test::RunFiles files;
  files.report(report(R"("compute": 0.5, "all_to_all": 0.5)",
                      R"("traffic": {"all_to_all_bytes_per_step": 1073741824,
                         "all_to_all_off_node_bytes_per_step": 536870912})"));
  const Bottleneck b = find_bottlenecks(read_run(files.path()))[0];
  CHECK_THAT(b.evidence, Contains("500.00 ms (50%)") && Contains("1.00 GiB") &&
                             Contains("50% of it between nodes"));
  CHECK(b.share == Approx(0.5));
}

TEST_CASE("diagnose says in words and in JSON what holds") {
  test::RunFiles files;
  files.report(report(R"("compute": 0.4, "all_to_all": 0.6)"));
  std::string routing = "step,layer,rank,expert,assigned,kept\n";
  for (int step = 1; step <= 100; ++step)
    for (int e = 0; e < 4; ++e)
      routing += fmt::format("{},1,all,{},{},{}\n", step, e, e ? 10 : 970, e ? 10 : 300);
  files.directory.write("routing.csv", routing);
  files.steps("loss", 100, [](int64_t s) { return std::vector<double>{5.0 / double(s)}; });
  const Ran text = run({"diagnose", files.path()});
  CHECK(text.code == 0);
  CHECK_THAT(text.out, Contains("made") && Contains("collapsed, layer 1") &&
                           Contains("aux_loss_factor: 0.03") && Contains("communication bound") &&
                           Contains("67% of assignments dropped"));
  const Json::Value json = parsed(run({"diagnose", files.path(), "--json"}).out);
  CHECK(json["schema"] == "moetwin-diagnosis/1");
  CHECK(json["verdicts"][0]["kind"] == "collapsed");
  CHECK(json["verdicts"][0]["layer"] == 1);
  CHECK(json["verdicts"][0]["experts"][0] == 0);
  CHECK(json["verdicts"][0]["onset_step"].isNull());
  // 970 of 1000 over a mean of 250
  CHECK(json["layers"][0]["mean_load"]["imbalance_experts"].asDouble() == Approx(3.88));
  CHECK(json["layers"][0]["dropped_share"].asDouble() == Approx(0.67));
  CHECK(json["bottlenecks"][0]["kind"] == "communication");
}

TEST_CASE("what is no run is refused with exit code 2") {
  const Ran ran = run({"diagnose", "/nonexistent/run"});
  CHECK(ran.code == 2);
  CHECK_THAT(ran.err, Contains("/nonexistent/run: does not exist"));
}

}  // namespace moetwin
