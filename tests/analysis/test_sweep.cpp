// A sweep's points, its directory and its table.

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>

#include "analysis/sweep/sweep.h"
#include "analysis/sweep/table.h"
#include "core/base/error.h"

namespace moetwin {
namespace {

using Overrides = std::vector<std::string>;

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::configuration);
    return error.what();
  }
  return "";
}

TEST_CASE("commas in brackets and quotes belong to a value") {
  CHECK(parse_axis("a.b=1, 2,3") == Axis{"a.b", {"1", "2", "3"}});
  CHECK(parse_axis("data.files=[\"x,y\",\"z\"],[\"w\"]") ==
        Axis{"data.files", {"[\"x,y\",\"z\"]", "[\"w\"]"}});
  CHECK(parse_axis("n=\"a,b\",c") == Axis{"n", {"\"a,b\"", "c"}});
  CHECK(refusal([] { parse_axis("a"); }).find("there is no =") != std::string::npos);
  CHECK(refusal([] { parse_axis("=1"); }).find("no key") != std::string::npos);
  CHECK(refusal([] { parse_axis("a=1,,2"); }).find("empty") != std::string::npos);
  CHECK(refusal([] { parse_axis("a=1,2,1"); }).find("1 stands there twice") != std::string::npos);
}

TEST_CASE("a grid is every combination, the last key fastest; a list goes in step") {
  const std::vector<Axis> axes{{"a", {"1", "2"}}, {"b", {"x", "y", "z"}}};
  const auto grid = sweep_points(axes, Combination::grid);
  REQUIRE(grid.size() == 6);
  CHECK(grid[0] == Overrides{"a=1", "b=x"});
  CHECK(grid[1] == Overrides{"a=1", "b=y"});
  CHECK(grid[5] == Overrides{"a=2", "b=z"});
  const auto list = sweep_points({{"a", {"1", "2"}}, {"b", {"x", "y"}}}, Combination::list);
  CHECK(list == std::vector<Overrides>{{"a=1", "b=x"}, {"a=2", "b=y"}});
  CHECK(refusal([&] { sweep_points(axes, Combination::list); }).find("a has 2, b has 3") !=
        std::string::npos);
  CHECK(refusal([] {
          sweep_points({{"a", {"1"}}, {"a", {"2"}}}, Combination::grid);
        }).find("twice") != std::string::npos);
}

struct Directory {
  std::string path =
      (std::filesystem::temp_directory_path() / "moetwin-test-sweep-directory").string();
  Directory() { std::filesystem::remove_all(path); }
  ~Directory() { std::filesystem::remove_all(path); }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path + "/" + name).parent_path());
    std::ofstream(path + "/" + name) << text;
  }
};

SweepPlan four_points() {
  SweepPlan plan;
  plan.scenario = "some/small.json";
  plan.axes = {{"distributed_config.expert_parallel_size", {"1", "2", "4", "8"}}};
  plan.scenario_text = "{}\n";
  return plan;
}

// Two that ran, one whose layout is refused, one that was not reached.
std::vector<SweepPoint> some_points(const Directory& directory) {
  const SweepPlan plan = four_points();
  open_sweep(directory.path, plan);
  const auto points = plan.points();
  directory.write("points/0000/report.json",
                  R"({"throughput": {"step_seconds_median": 0.5, "tokens_per_second": 2048},
                      "memory": {"peak_bytes_per_rank": [1024, 3072]},
                      "step_parts_seconds": {"all_to_all": 0.125},
                      "routing": {"layers": [{"imbalance_ranks": 1.5}, {"imbalance_ranks": 2.5}]},
                      "verdicts": [{"kind": "oscillating"}, {"kind": "oscillating"}]})");
  directory.write("points/0001/report.json",
                  R"({"throughput": {"step_seconds_median": 0.25, "tokens_per_second": 4096}})");
  finish_point(directory.path, 0, points[0], 0, "");
  finish_point(directory.path, 1, points[1], 7, "stopped, as asked");
  finish_point(directory.path, 2, points[2], 2, "world_size is 8, \"4\" x 4 is not");
  return read_points(directory.path, plan);
}

TEST_CASE("a point is what its run's exit code and report say") {
  const Directory directory;
  const auto points = some_points(directory);
  REQUIRE(points.size() == 4);
  CHECK(points[0].state == PointState::done);
  CHECK(points[1].state == PointState::done);
  CHECK(points[2].state == PointState::refused);
  CHECK(points[3].state == PointState::missing);
  CHECK(point_state(3) == PointState::does_not_fit);
  CHECK(point_state(70) == PointState::failed);
  CHECK(sweep_value(points[0], sweep_figure("peak_bytes")) == 3072);
  CHECK(sweep_value(points[0], sweep_figure("all_to_all_seconds")) == 0.125);
  CHECK(sweep_value(points[0], sweep_figure("imbalance_ranks")) == 2.5);
  CHECK(sweep_verdicts(points[0]) == "oscillating");
  const auto by_rate = ranked(points, sweep_figure("tokens_per_second"));
  REQUIRE(by_rate.size() == 2);
  CHECK(by_rate[0]->index == 1);
  CHECK(ranked(points, sweep_figure("step_seconds"))[0]->index == 1);
  CHECK(refusal([] { sweep_figure("speed"); }).find("legal: step_seconds") != std::string::npos);
}

TEST_CASE("the table has a row per point and quotes what needs it") {
  const Directory directory;
  const std::string csv = sweep_csv(four_points(), some_points(directory));
  CHECK(csv.find("point,distributed_config.expert_parallel_size,state,exit_code,step_seconds") ==
        0);
  CHECK(csv.find("\n0,1,done,0,0.5,2048,") != std::string::npos);
  CHECK(csv.find("\"world_size is 8, \"\"4\"\" x 4 is not\"") != std::string::npos);
  CHECK(csv.find("\n3,8,missing,,") != std::string::npos);
  const auto rows = sweep_rows(four_points(), some_points(directory));
  REQUIRE(rows.size() == 5);
  CHECK(rows[0][1] == "expert_parallel_size");
  CHECK(rows[1][3] == "2.05k");
}

TEST_CASE("a directory belongs to one sweep") {
  const Directory directory;
  const SweepPlan plan = four_points();
  open_sweep(directory.path, plan);
  open_sweep(directory.path, plan);
  CHECK(read_sweep(directory.path).points() == plan.points());
  SweepPlan other = plan;
  other.axes[0].values.pop_back();
  CHECK(refusal([&] { open_sweep(directory.path, other); }).find("its axes differs") !=
        std::string::npos);
  other = plan;
  other.scenario_text = "{ }\n";
  CHECK(refusal([&] { open_sweep(directory.path, other); }).find("scenario_text") !=
        std::string::npos);
  CHECK(refusal([&] { read_sweep(directory.path + "/points"); }).find("there is no sweep") !=
        std::string::npos);
}

}  // namespace
}  // namespace moetwin
