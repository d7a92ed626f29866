#include "analysis/result/run.h"

#include <fmt/format.h>
#include <json/reader.h>
#include <json/writer.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/base/error.h"
#include "core/scenario/read.h"

namespace moetwin {

namespace {

namespace fs = std::filesystem;

Json::Value read_report(const std::string& path) {
  std::ifstream in(path);
  Json::Value report;
  std::string fault;
  if (!Json::parseFromStream(Json::CharReaderBuilder(), in, &report, &fault) || !report.isObject())
    throw Error(ErrorClass::configuration, fmt::format("{}: is no JSON object: {}", path, fault));
  const std::string schema = report["schema"].asString();
  if (!schema.starts_with("moetwin-report/"))
    throw Error(
        ErrorClass::configuration,
        fmt::format("{}: schema is \"{}\"; it must begin with \"moetwin-report/\"", path, schema));
  return report;
}

/// Files of Megatron's routing records in a directory or one level below.
std::vector<std::string> megatron_files(const std::string& directory) {
  std::vector<std::string> files;
  for (auto at = fs::recursive_directory_iterator(directory);
       at != fs::recursive_directory_iterator(); ++at) {
    if (at.depth() >= 1) at.disable_recursion_pending();
    const std::string stem = at->path().stem().string();
    if (at->is_regular_file() && at->path().extension() == ".jsonl" &&
        stem.find("rank") != stem.npos)
      files.push_back(at->path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void read_settings(Run& run) {
  const Json::Value& settings = run.report["settings"];
  if (!settings.isObject() || !settings.isMember("model_config")) return;
  try {
    run.scenario = parse_scenario(Json::writeString(Json::StreamWriterBuilder(), settings),
                                  run.file("report.json") + " settings");
    run.grid.emplace(run.scenario->distributed_config,
                     run.scenario->model_config.moe_layer_config.num_experts,
                     run.scenario->model_config.expert_width());
  } catch (const Error&) {
    // Written by a version with other keys: the figures still stand, the layout is unknown.
    run.scenario.reset();
    run.grid.reset();
  }
}

}  // namespace

bool Run::has_file(const std::string& file_name) const {
  return !directory.empty() && fs::is_regular_file(file(file_name));
}

Run read_run(const std::string& path, int64_t experts) {
  Run run;
  if (!fs::exists(path))
    throw Error(ErrorClass::configuration, fmt::format("{}: does not exist", path));
  run.name = fs::path(path).filename().string();
  if (run.name.empty()) run.name = fs::path(path).parent_path().filename().string();
  if (!fs::is_directory(path)) {
    run.routing =
        path.ends_with(".csv") ? read_routing_csv(path) : read_megatron_routing({path}, experts);
    return run;
  }
  run.directory = path;
  while (run.directory.size() > 1 && run.directory.back() == '/') run.directory.pop_back();
  if (run.has_file("report.json")) run.report = read_report(run.file("report.json"));
  if (run.has_file("steps.csv")) run.steps = CsvTable(run.file("steps.csv"));
  if (run.has_file("routing.csv")) run.routing = read_routing_csv(run.file("routing.csv"));
  if (run.has_file("probe.csv")) read_probe_csv(run.file("probe.csv"), run.routing);
  if (run.report.isNull() && run.steps.rows() == 0 && run.routing.layers.empty()) {
    const std::vector<std::string> files = megatron_files(run.directory);
    if (files.empty())
      throw Error(ErrorClass::configuration,
                  fmt::format("{}: holds no report.json, steps.csv, routing.csv nor "
                              "*rank<number>.jsonl of Megatron",
                              path));
    run.routing = read_megatron_routing(files, experts);
  }
  if (run.report.isObject()) {
    const std::string scenario = run.report["scenario"].asString();
    if (!scenario.empty()) run.name = scenario;
    read_settings(run);
  }
  return run;
}

LossSeries loss_series(const CsvTable& steps) {
  LossSeries series;
  if (steps.rows() == 0) return series;
  for (double step : steps.column("step")) series.steps.push_back(static_cast<int64_t>(step));
  series.loss = steps.column_or_nan("loss");
  series.grad_norm = steps.column_or_nan("grad_norm");
  return series;
}

LossSeries loss_series(const Run& run) { return loss_series(run.steps); }

StabilityOptions stability_options(const Scenario& scenario, const Grid& grid) {
  StabilityOptions options;
  options.top_k = static_cast<double>(scenario.model_config.moe_layer_config.top_k);
  options.expert_columns = grid.expert_sharding();
  return options;
}

StabilityOptions stability_options(const Run& run) {
  return run.scenario && run.grid ? stability_options(*run.scenario, *run.grid)
                                  : StabilityOptions{};
}

double report_number(const Json::Value& report, const std::string& path) {
  const Json::Value* at = &report;
  for (size_t from = 0; from <= path.size();) {
    const size_t dot = std::min(path.find('.', from), path.size());
    if (!at->isObject()) return std::numeric_limits<double>::quiet_NaN();
    at = &(*at)[path.substr(from, dot - from)];
    from = dot + 1;
  }
  return at->isNumeric() ? at->asDouble() : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace moetwin
