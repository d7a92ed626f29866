#include "analysis/sweep/sweep.h"

#include <fmt/format.h>
#include <json/reader.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "core/base/error.h"
#include "core/record/json_text.h"
#include "core/record/output_file.h"

namespace moetwin {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSchema = "moetwin-sweep/1";

std::optional<Json::Value> json_of(const std::string& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  Json::Value value;
  std::string errors;
  if (!Json::parseFromStream(Json::CharReaderBuilder(), in, &value, &errors) || !value.isObject())
    throw Error(ErrorClass::configuration, path + ": no JSON object; remove it to run this again");
  return value;
}

Json::Value list(const std::vector<std::string>& texts) {
  Json::Value json(Json::arrayValue);
  for (const std::string& text : texts) json.append(text);
  return json;
}

std::vector<std::string> texts(const Json::Value& json) {
  std::vector<std::string> list;
  for (const Json::Value& value : json) list.push_back(value.asString());
  return list;
}

Json::Value plan_json(const SweepPlan& plan) {
  Json::Value json;
  json["schema"] = kSchema;
  json["scenario"] = plan.scenario;
  json["scenario_text"] = plan.scenario_text;
  json["backend"] = plan.backend;
  json["options"] = list(plan.options);
  json["combination"] = plan.combination == Combination::list ? "list" : "grid";
  json["axes"] = Json::Value(Json::arrayValue);
  for (const Axis& axis : plan.axes) {
    Json::Value entry;
    entry["key"] = axis.key;
    entry["values"] = list(axis.values);
    json["axes"].append(entry);
  }
  return json;
}

void write(const std::string& path, const Json::Value& json) {
  OutputFile file(path);
  file.write(json_text(json));
  file.commit();
}

}  // namespace

const char* point_state_name(PointState state) {
  switch (state) {
    case PointState::missing:
      return "missing";
    case PointState::done:
      return "done";
    case PointState::refused:
      return "refused";
    case PointState::does_not_fit:
      return "does not fit";
    case PointState::failed:
      return "failed";
  }
  return "";
}

PointState point_state(int exit_code) {
  switch (exit_code) {
    case 0:
    case static_cast<int>(ErrorClass::stopped):
      return PointState::done;
    case static_cast<int>(ErrorClass::configuration):
      return PointState::refused;
    case static_cast<int>(ErrorClass::capacity):
      return PointState::does_not_fit;
    default:
      return PointState::failed;
  }
}

std::string SweepPoint::value(const Axis& axis) const {
  for (const std::string& text : overrides)
    if (text.compare(0, axis.key.size() + 1, axis.key + "=") == 0)
      return text.substr(axis.key.size() + 1);
  return "";
}

void open_sweep(const std::string& directory, const SweepPlan& plan) {
  const std::string path = directory + "/sweep.json";
  make_directory(directory);
  const Json::Value now = plan_json(plan);
  const std::optional<Json::Value> before = json_of(path);
  if (!before) return write(path, now);
  for (const std::string& part : now.getMemberNames())
    if ((*before)[part] != now[part])
      throw Error(ErrorClass::configuration,
                  fmt::format("{} is of another sweep: its {} differs; give another --out, or "
                              "remove {}",
                              path, part, directory));
}

SweepPlan read_sweep(const std::string& directory) {
  const std::string path = directory + "/sweep.json";
  const std::optional<Json::Value> json = json_of(path);
  if (!json || (*json)["schema"].asString() != kSchema)
    throw Error(ErrorClass::configuration,
                fmt::format("{}: there is no sweep ({} with schema {})", directory, path, kSchema));
  SweepPlan plan;
  plan.scenario = (*json)["scenario"].asString();
  plan.scenario_text = (*json)["scenario_text"].asString();
  plan.backend = (*json)["backend"].asString();
  plan.options = texts((*json)["options"]);
  plan.combination =
      (*json)["combination"].asString() == "list" ? Combination::list : Combination::grid;
  for (const Json::Value& axis : (*json)["axes"])
    plan.axes.push_back({axis["key"].asString(), texts(axis["values"])});
  return plan;
}

std::string point_directory(size_t index) { return fmt::format("points/{:04}", index); }

void finish_point(const std::string& directory, size_t index,
                  const std::vector<std::string>& overrides, int exit_code,
                  const std::string& message) {
  const std::string point = directory + "/" + point_directory(index);
  make_directory(point);
  Json::Value json;
  json["overrides"] = list(overrides);
  json["exit_code"] = exit_code;
  json["message"] = message;
  write(point + "/point.json", json);
}

SweepPoint read_point(const std::string& directory, size_t index,
                      const std::vector<std::string>& overrides) {
  SweepPoint point;
  point.index = index;
  point.overrides = overrides;
  point.directory = point_directory(index);
  const std::string place = directory + "/" + point.directory;
  if (const auto ended = json_of(place + "/point.json")) {
    point.exit_code = (*ended)["exit_code"].asInt();
    point.message = (*ended)["message"].asString();
    point.state = point_state(point.exit_code);
    if (auto report = json_of(place + "/report.json")) point.report = *report;
  }
  return point;
}

std::vector<SweepPoint> read_points(const std::string& directory, const SweepPlan& plan) {
  std::vector<SweepPoint> points;
  for (const std::vector<std::string>& overrides : plan.points())
    points.push_back(read_point(directory, points.size(), overrides));
  return points;
}

}  // namespace moetwin
