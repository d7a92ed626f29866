#include <json/reader.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "analysis/page/page.h"
#include "analysis/page/sampling.h"
#include "analysis/page/sections.h"
#include "tests/analysis/run_files.h"
#include "tests/cli/run.h"

namespace moetwin {
namespace {

using Catch::Contains;

/// The data of a page as its scripts see it.
Json::Value data_of(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const size_t from = page.find(open) + open.size();
  Json::Value value;
  std::istringstream in(page.substr(from, page.find("</script>", from) - from));
  REQUIRE(Json::parseFromStream(Json::CharReaderBuilder(), in, &value, nullptr));
  return value;
}

}  // namespace

TEST_CASE("long series are drawn as means between their extremes") {
  std::vector<double> steps, values;
  for (int i = 0; i < 2500; ++i) steps.push_back(i + 1), values.push_back(i % 3);
  values[7] = 50;  // a spike must not vanish
  const Json::Value json = sampled(steps, values, 1000);
  CHECK(json["bucket"].asInt() == 3);
  REQUIRE(json["x"].size() == 834);
  CHECK(json["x"][1] == 4);
  CHECK(json["y"][0].asDouble() == 1);  // 0, 1, 2
  CHECK(json["high"][2].asDouble() == 50);
  CHECK(json["low"][2].asDouble() == 0);
  CHECK(rounded(123456.789).asDouble() == 123460);
  CHECK(rounded(1.23456789e-7).asDouble() == Approx(1.2346e-7));
  CHECK(rounded(std::nan("")).isNull());
}

TEST_CASE("loads are in hundredths of the mean, and few enough to draw") {
  Run run;
  for (int l = 0; l < 2; ++l) {
    LayerSeries layer;
    layer.layer = l;
    layer.experts = 4;
    for (int64_t step = 1; step <= 10000; ++step) {
      layer.steps.push_back(step);
      for (double n : {10.0, 20.0, 30.0, 40.0}) layer.load.push_back(n);
      layer.kept.push_back(100);
    }
    run.routing.layers.push_back(layer);
  }
  const Json::Value json = loads_section(run);
  REQUIRE(json.size() == 2);
  CHECK(json[0]["steps"].size() <= 360);
  CHECK(json[0]["load"][0][0] == 40);
  CHECK(json[0]["load"][3][5] == 160);
}

TEST_CASE("a page of 10,000 steps is under 5 MB and holds what the files say") {
  test::RunFiles files;
  files.report(R"({"schema": "moetwin-report/1", "scenario": "<made & named>", "backend": "sim",
    "seed": 3, "steps_done": 10000, "median_step": 7,
    "throughput": {"tokens_per_second": 5000},
    "step_parts_seconds": {"compute": 0.6, "all_to_all": 0.4},
    "step_parts_seconds_per_rank": {"compute": [0.5, 0.7], "all_to_all": [0.5, 0.3]},
    "memory": {"peak_bytes_per_rank": [1024, 2048], "capacity_bytes": 4096,
               "classes": {"parameters": 512}},
    "traffic": {"all_to_all_bytes_per_step": 100, "all_to_all_off_node_bytes_per_step": 40,
                "collectives": [{"collective": "all_to_all", "purpose": "dispatch", "group": "ep",
                                 "group_size": 2, "algorithm": null, "calls_per_step": 2,
                                 "bytes_per_step": 50, "off_node_bytes_per_step": 20,
                                 "seconds_per_step": null}]},
    "notes": ["</script><script>alert(1)</script>"],
    "verdicts": [{"kind": "out_of_memory", "evidence": "rank 3 is over", "advice": "less"}]})");
  files.steps("loss,step_seconds", 10000, [](int64_t s) {
    return std::vector<double>{1 + 1.0 / static_cast<double>(s), 0.001 * static_cast<double>(s)};
  });
  std::string routing = "step,layer,rank,expert,assigned,kept\n";
  for (int step = 1; step <= 10000; ++step)
    for (int layer = 0; layer < 2; ++layer)
      for (int e = 0; e < 16; ++e)
        routing += fmt::format("{},{},all,{},{},{}\n", step, layer, e, 100 + e, 100 + e);
  files.directory.write("routing.csv", routing);
  const std::string page = report_page({read_run(files.path())});
  CHECK(page.size() < 5000000);
  // Nothing of a file can end the script that holds the data.
  CHECK(page.find("alert(1)</script>") == page.npos);
  CHECK_THAT(page, Contains("<title>&lt;made &amp; named&gt;</title>"));
  const Json::Value data = data_of(page);
  const Json::Value& run = data["runs"][0];
  CHECK(run["name"] == "<made & named>");
  CHECK(run["notes"][run["notes"].size() - 1] == "</script><script>alert(1)</script>");
  CHECK(run["parts"]["rows"][1]["values"]["compute"].asDouble() == 0.7);
  CHECK(run["memory"]["rows"][1]["values"]["peak"] == 2048);
  CHECK(run["traffic"][0]["values"]["between_nodes"].asDouble() == 40);
  CHECK(run["traffic"][0]["values"]["in_node"].asDouble() == 60);
  REQUIRE(run["collectives"].size() == 1);
  CHECK(run["collectives"][0]["collective"].asString() == "all-to-all");
  CHECK(run["collectives"][0]["bytes"].asDouble() == 50);
  CHECK(run["collectives"][0]["seconds"].isNull());
  CHECK(run["loss"]["bucket"] == 10);
  bool told = false;
  for (const Json::Value& v : run["verdicts"]) told = told || v["kind"] == "out_of_memory";
  CHECK(told);
  CHECK(report_page({read_run(files.path())}) == page);
}

TEST_CASE("ops by device time are those that the run shows at its end") {
  test::RunFiles files;
  // Two ranks, steps 3 and 4: experts' products took 8 s, so 2 s for a rank in a step, and once 3
  // s.
  files.report(R"({"schema": "moetwin-report/1", "scenario": "made",
    "profile": {"steps": [3, 4], "ranks": 2, "device_seconds": 10, "file": "profile.csv", "ops": [
      {"op": "grouped_gemm", "activity": "compute", "calls": 16, "total_seconds": 8, "mean_seconds": 0.5,
       "share": 0.8, "bytes": 64, "most_seconds_of_a_rank_and_step": 3, "most_rank": 1},
      {"op": "nothing", "activity": "compute", "calls": 1, "total_seconds": 0, "mean_seconds": 0,
       "share": 0, "bytes": 0, "most_seconds_of_a_rank_and_step": 0, "most_rank": 0}]}})");
  const Json::Value data = data_of(report_page({read_run(files.path())}));
  const Json::Value& profile = data["runs"][0]["profile"];
  CHECK(profile["steps"] == "steps 3-4");
  CHECK(profile["ranks"] == 2);
  CHECK(profile["device_seconds"].asDouble() == 10);
  REQUIRE(profile["ops"].size() == 2);
  const Json::Value& op = profile["ops"][0];
  CHECK(op["op"] == "grouped_gemm");
  CHECK(op["calls"] == 16);
  CHECK(op["total_seconds"].asDouble() == 8);
  CHECK(op["mean_seconds"].asDouble() == 0.5);
  CHECK(op["share"].asDouble() == 0.8);
  CHECK(op["busiest"].asDouble() == 1.5);
  CHECK(op["most_rank"] == 1);
  CHECK(profile["ops"][1]["busiest"].isNull());  // 0 / 0

  test::RunFiles without;
  without.report(R"({"schema": "moetwin-report/1", "scenario": "made"})");
  CHECK(data_of(report_page({read_run(without.path())}))["runs"][0]["profile"].isNull());
}

TEST_CASE("nothing in a page asks for another file") {
  test::RunFiles files;
  files.report(R"({"schema": "moetwin-report/1", "scenario": "made"})");
  const std::string path = write_report_page(files.path());
  const std::string page = test::file_bytes(path);
  for (const char* tag : {"<script src", "<link rel=\"stylesheet", "<img", "@import", "url(http"})
    CHECK(page.find(tag) == page.npos);
  CHECK_THAT(page, Contains("default-src 'none'"));
}

TEST_CASE("several runs make a page with their comparison first") {
  test::RunFiles a, b;
  for (test::RunFiles* files : {&a, &b}) {
    files->report(R"({"schema": "moetwin-report/1", "scenario": "made", "seed": 1})");
    files->steps("loss,step_seconds", 60, [&](int64_t s) {
      return std::vector<double>{1.0 / static_cast<double>(s), files == &a ? 1.0 : 1.1};
    });
  }
  const std::string out = a.directory / "both.html";
  REQUIRE(run({"report", a.path(), b.path(), "-o", out}).code == 0);
  const Json::Value data = data_of(test::file_bytes(out));
  CHECK(data["runs"].size() == 2);
  CHECK_THAT(data["comparison"]["pairs"][0]["headline"].asString(), Contains("the step is +10.0%"));
}

}  // namespace moetwin
