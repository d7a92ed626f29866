#include "analysis/sweep/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/result/run.h"
#include "core/base/error.h"
#include "core/base/units.h"

namespace moetwin {

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

double largest(const Json::Value& list) {
  double most = kUnknown;
  for (const Json::Value& value : list)
    if (value.isNumeric())
      most = std::isnan(most) ? value.asDouble() : std::max(most, value.asDouble());
  return most;
}

double worst_layer(const Json::Value& report, const char* member) {
  double most = kUnknown;
  for (const Json::Value& layer : report["routing"]["layers"])
    if (layer[member].isNumeric())
      most = std::isnan(most) ? layer[member].asDouble() : std::max(most, layer[member].asDouble());
  return most;
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == text.npos) return text;
  std::string safe = "\"";
  for (const char c : text) safe += c == '"' ? std::string("\"\"") : std::string(1, c);
  return safe + "\"";
}

/// "data_parallel_size" of "distributed_config.data_parallel_size".
std::string last_word(const std::string& key) { return key.substr(key.rfind('.') + 1); }

std::string cut(const std::string& text, size_t length) {
  return text.size() <= length ? text : text.substr(0, length - 3) + "...";
}

}  // namespace

std::vector<SweepFigure> sweep_figures() {
  return {{"step_seconds", "step", "s", -1},
          {"tokens_per_second", "tokens/s", "tokens/s", 1},
          {"mfu", "MFU", "share", 1},
          {"peak_bytes", "peak memory", "bytes", -1},
          {"compute_seconds", "compute", "s", -1},
          {"all_to_all_seconds", "all-to-all", "s", -1},
          {"other_communication_seconds", "other comm.", "s", -1},
          {"bubble_seconds", "bubble", "s", -1},
          {"host_seconds", "host", "s", -1},
          {"all_to_all_bytes", "all-to-all sent", "bytes", -1},
          {"loss", "loss", "nats", -1},
          {"validation_loss", "validation", "nats", -1},
          {"imbalance_experts", "max/mean experts", "", -1},
          {"imbalance_ranks", "max/mean ranks", "", -1},
          {"dropped_share", "dropped", "share", -1},
          {"gpu_hours", "GPU hours", "h", -1},
          {"price", "price", "", -1}};
}

SweepFigure sweep_figure(const std::string& name) {
  std::string legal;
  for (const SweepFigure& figure : sweep_figures()) {
    if (name == figure.name) return figure;
    legal += (legal.empty() ? "" : ", ") + std::string(figure.name);
  }
  throw Error(ErrorClass::configuration,
              fmt::format("--rank-by {}: there is no such figure; legal: {}", name, legal));
}

double sweep_value(const SweepPoint& point, const SweepFigure& figure) {
  const Json::Value& report = point.report;
  if (!report.isObject()) return kUnknown;
  const std::string name = figure.name;
  if (name == "step_seconds") return report_number(report, "throughput.step_seconds_median");
  if (name == "tokens_per_second" || name == "mfu")
    return report_number(report, "throughput." + name);
  if (name == "peak_bytes") return largest(report["memory"]["peak_bytes_per_rank"]);
  if (name == "all_to_all_bytes") return report_number(report, "traffic.all_to_all_bytes_per_step");
  if (name == "loss") return report_number(report, "loss.last");
  if (name == "validation_loss") return report_number(report, "loss.validation_last");
  if (name == "gpu_hours" || name == "price") return report_number(report, "cost." + name);
  const size_t seconds = name.rfind("_seconds");
  if (seconds != name.npos)
    return report_number(report, "step_parts_seconds." + name.substr(0, seconds));
  return worst_layer(report, figure.name);
}

std::string sweep_text(double value, const SweepFigure& figure) {
  if (std::isnan(value)) return "-";
  const std::string unit = figure.unit;
  return unit == "s"          ? format_seconds(value)
         : unit == "bytes"    ? format_bytes(value)
         : unit == "tokens/s" ? format_count(value)
         : unit == "share"    ? fmt::format("{:.1f} %", 100 * value)
                              : fmt::format("{:.4g}", value);
}

std::string sweep_verdicts(const SweepPoint& point) {
  std::string kinds;
  std::vector<std::string> seen;
  for (const Json::Value& verdict : point.report["verdicts"]) {
    const std::string kind = verdict["kind"].asString();
    if (std::find(seen.begin(), seen.end(), kind) != seen.end()) continue;
    seen.push_back(kind);
    kinds += (kinds.empty() ? "" : ", ") + kind;
  }
  return kinds;
}

std::vector<const SweepPoint*> ranked(const std::vector<SweepPoint>& points,
                                      const SweepFigure& figure) {
  std::vector<const SweepPoint*> order;
  for (const SweepPoint& point : points)
    if (point.state == PointState::done && !std::isnan(sweep_value(point, figure)))
      order.push_back(&point);
  std::stable_sort(order.begin(), order.end(), [&](const SweepPoint* a, const SweepPoint* b) {
    const double x = sweep_value(*a, figure), y = sweep_value(*b, figure);
    return figure.better > 0 ? x > y : x < y;
  });
  return order;
}

std::string sweep_csv(const SweepPlan& plan, const std::vector<SweepPoint>& points) {
  std::string csv = "point";
  for (const Axis& axis : plan.axes) csv += "," + axis.key;
  csv += ",state,exit_code";
  for (const SweepFigure& figure : sweep_figures()) csv += std::string(",") + figure.name;
  csv += ",verdicts,message,directory\n";
  for (const SweepPoint& point : points) {
    csv += std::to_string(point.index);
    for (const Axis& axis : plan.axes) csv += "," + quoted(point.value(axis));
    csv += std::string(",") + point_state_name(point.state) + "," +
           (point.state == PointState::missing ? "" : std::to_string(point.exit_code));
    for (const SweepFigure& figure : sweep_figures()) {
      const double value = sweep_value(point, figure);
      csv += std::isnan(value) ? "," : fmt::format(",{}", value);
    }
    csv += "," + quoted(sweep_verdicts(point)) + "," + quoted(point.message) + "," +
           point.directory + "\n";
  }
  return csv;
}

std::vector<std::vector<std::string>> sweep_rows(const SweepPlan& plan,
                                                 const std::vector<SweepPoint>& points) {
  std::vector<SweepFigure> shown;
  for (const char* name : {"step_seconds", "tokens_per_second", "peak_bytes", "all_to_all_seconds",
                           "loss", "imbalance_ranks", "dropped_share"}) {
    const SweepFigure figure = sweep_figure(name);
    if (std::any_of(points.begin(), points.end(),
                    [&](const SweepPoint& p) { return !std::isnan(sweep_value(p, figure)); }))
      shown.push_back(figure);
  }
  std::vector<std::vector<std::string>> rows(1);
  rows[0].push_back("point");
  for (const Axis& axis : plan.axes) rows[0].push_back(last_word(axis.key));
  for (const SweepFigure& figure : shown) rows[0].push_back(figure.title);
  rows[0].push_back("");
  for (const SweepPoint& point : points) {
    std::vector<std::string> row{std::to_string(point.index)};
    for (const Axis& axis : plan.axes) row.push_back(point.value(axis));
    for (const SweepFigure& figure : shown)
      row.push_back(sweep_text(sweep_value(point, figure), figure));
    row.push_back(point.state == PointState::done
                      ? sweep_verdicts(point)
                      : point_state_name(point.state) +
                            (point.message.empty() ? "" : ": " + cut(point.message, 100)));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace moetwin
