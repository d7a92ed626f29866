// A measured run corrects the profile that predicted it: with the corrected one the model
// reproduces the measured times.

#include <json/json.h>

#include <catch2/catch.hpp>
#include <map>
#include <sstream>

#include "analysis/compare/correction.h"
#include "cli/machines.h"
#include "tests/cli/run.h"
#include "tests/support/in_child.h"

using namespace moetwin;
using Catch::Matchers::Contains;

namespace {

const char* const kScenario = R"({
  "model_config": {"hidden_size": 64, "num_layers": 2, "num_attention_heads": 2,
    "vocab_size": 100, "sequence_length": 256,
    "moe_layer_config": {"num_experts": 8, "top_k": 2}},
  "distributed_config": {"world_size": 8, "data_parallel_size": 2, "expert_parallel_size": 4},
  "training_config": {"steps": 3, "numerics": "none", "warmup_steps_excluded": 1},
  "data": {"format": "synthetic"}
})";

Json::Value parsed(const std::string& text) {
  Json::Value json;
  std::istringstream(text) >> json;
  return json;
}

std::string toy_profile() {
  Scenario scenario;
  scenario.cluster.profile = "toy-8gpu";
  return machine_profile(scenario).path;
}

/// The toy machine with other figures, in the folder.
std::string profile(const Folder& folder, const std::string& name,
                    const std::map<std::string, double>& figures) {
  std::ifstream in(toy_profile());
  Json::Value json;
  in >> json;
  for (const auto& [path, value] : figures) {
    Json::Value* at = &json;
    std::istringstream parts(path);
    for (std::string part; std::getline(parts, part, '.');) at = &(*at)[part];
    (*at)["value"] = value;
    (*at)["source"] = "planted by the test";
  }
  return folder.write(name, json.toStyledString());
}

Json::Value run_on(const Folder& folder, const std::string& machine, const std::string& out) {
  const std::string bytes = test::in_child([&] {
    const Ran ran = run({"run", folder.file("scenario.json"), "--quiet", "--out", folder.file(out),
                         "--set", "cluster.profile=" + machine});
    return std::to_string(ran.code) + " " + ran.err;
  });
  REQUIRE(bytes == "0 ");
  return parsed(folder.read(out + "/report.json"));
}

OpLists ops_of(const Folder& folder, const std::string& out) {
  return read_op_lists(read_run(folder.file(out)));
}

}  // namespace

TEST_CASE("a planted slow-down is in the corrected profile, which then predicts it within 1%") {
  const Folder folder("corrected-profile");
  folder.write("scenario.json", kScenario);
  // No time on the host: what a launch costs is no part of an op.
  const std::string model = profile(folder, "model.json", {{"gpu.launch_overhead_seconds", 0}});
  const std::string slow = profile(folder, "slow.json",
                                   {{"gpu.launch_overhead_seconds", 0},
                                    {"gpu.compute_efficiency.grouped_gemm", 1 / 1.05},
                                    {"gpu.bandwidth_efficiency.grouped_gemm", 1 / 1.05},
                                    {"gpu.bandwidth_efficiency.attention", 0.5},
                                    {"nvlink.bytes_per_second", 7e9}});
  run_on(folder, model, "predicted");
  const Json::Value measured = run_on(folder, slow, "measured");
  const double seconds = measured["throughput"]["step_seconds_median"].asDouble();

  const std::string corrected = folder.file("corrected.json");
  const Ran compared = run(
      {"compare", folder.file("predicted"), folder.file("measured"), "--write-profile", corrected});
  INFO(compared.err);
  CHECK((compared.code == 0 || compared.code == 1));
  int grouped = 0;
  const Json::Value written = parsed(folder.read("corrected.json"));
  for (const Json::Value& entry : written["corrections"]) {
    if (entry["op"] != "grouped_gemm") continue;
    ++grouped;
    CHECK(entry["factor"].asDouble() == Approx(1.05).epsilon(1e-3));
    CHECK_THAT(entry["source"].asString(), Contains("measured") || Contains("scenario"));
  }
  CHECK(grouped >= 2);

  const Json::Value again = run_on(folder, corrected, "again");
  CHECK(again["throughput"]["step_seconds_median"].asDouble() == Approx(seconds).epsilon(0.01));
  const Json::Value before = parsed(folder.read("predicted/report.json"));
  CHECK(before["throughput"]["step_seconds_median"].asDouble() < 0.95 * seconds);
  const std::vector<Correction> left =
      corrections(ops_of(folder, "again"), ops_of(folder, "measured"));
  REQUIRE(left.size() > 20);
  for (const Correction& c : left) {
    CAPTURE(c.op, c.group, c.bytes);
    CHECK(c.factor() == Approx(1).epsilon(0.01));
  }

  // A second time round the factors of the profile are multiplied in: they stay.
  const Ran second = run({"compare", folder.file("again"), folder.file("measured"),
                          "--write-profile", folder.file("second.json")});
  INFO(second.err);
  std::map<std::string, double> first;
  const auto key = [](const Json::Value& e) {
    return e["op"].asString() + e["group"].asString() + std::to_string(e["bytes"].asInt64());
  };
  for (const Json::Value& e : written["corrections"]) first[key(e)] = e["factor"].asDouble();
  const Json::Value again_written = parsed(folder.read("second.json"));
  for (const Json::Value& e : again_written["corrections"])
    CHECK(e["factor"].asDouble() == Approx(first.at(key(e))).epsilon(0.01));
}

TEST_CASE("a correction that makes no sense is refused with its place") {
  const Folder folder("bad-correction");
  folder.write("scenario.json", kScenario);
  Json::Value json;
  std::ifstream(toy_profile()) >> json;
  json["corrections"].append(Json::Value(Json::objectValue));
  json["corrections"][0]["op"] = "gemm";
  json["corrections"][0]["bytes"] = 1024;
  json["corrections"][0]["factor"] = 0;
  json["corrections"][0]["source"] = "nowhere";
  const Ran ran = run({"check", folder.file("scenario.json"), "--set",
                       "cluster.profile=" + folder.write("bad.json", json.toStyledString())});
  CHECK(ran.code == 2);
  CHECK_THAT(ran.err + ran.out, Contains("corrections[0]") && Contains("factor"));
}

TEST_CASE("factors of a collective leave out the wait for its last member") {
  // Rank 1 comes 3 s late to the first call and 2 s early to the second; both last 1 s, or 2.
  const auto lists = [](double seconds) {
    OpLists ops;
    const auto op = [&](double late) {
      ListedOp o;
      o.name = "all_reduce", o.group = "world", o.bytes = 64;
      o.seconds = seconds + late;
      return o;
    };
    ops[{0, 0}] = {op(3), op(0)};
    ops[{1, 0}] = {op(0), op(2)};
    return ops;
  };
  const std::vector<Correction> found = corrections(lists(1), lists(2));
  REQUIRE(found.size() == 1);
  CHECK(found[0].calls == 2);
  CHECK(found[0].factor() == Approx(2));
}
