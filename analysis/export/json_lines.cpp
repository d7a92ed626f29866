#include "analysis/export/json_lines.h"

#include <json/writer.h>

#include <cmath>
#include <map>

#include "core/record/routing_metrics.h"

namespace moetwin {

namespace {

Json::Value number(double value) {
  if (!std::isfinite(value)) return {};
  if (value == std::floor(value) && std::abs(value) < 9e15)
    return Json::Value(static_cast<Json::Int64>(value));
  return Json::Value(value);
}

}  // namespace

std::string json_lines(const Run& run) {
  std::map<int64_t, Json::Value> lines;
  if (run.steps.rows() > 0) {
    const std::vector<double>& step = run.steps.column("step");
    for (size_t i = 0; i < run.steps.rows(); ++i)
      for (const std::string& name : run.steps.names())
        lines[static_cast<int64_t>(step[i])][name] = number(run.steps.column(name)[i]);
  }
  for (const LayerSeries& layer : run.routing.layers) {
    const auto width = static_cast<size_t>(layer.experts);
    for (size_t t = 0; t < layer.size(); ++t) {
      Json::Value entry(Json::objectValue);
      entry["layer"] = Json::Int64(layer.layer);
      std::vector<int64_t> counts;
      int64_t sum = 0;
      for (size_t e = 0; e < width; ++e) {
        counts.push_back(std::llround(layer.load[t * width + e]));
        entry["counts"].append(Json::Int64(counts.back()));
        sum += counts.back();
      }
      const RoutingMetrics m = routing_metrics(counts, sum, {});
      entry["load_cv"] = m.load_cv;
      entry["imbalance_experts"] = m.imbalance_experts;
      entry["entropy"] = m.entropy;
      lines[layer.steps[t]]["layers"].append(entry);
    }
  }
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  std::string text;
  for (auto& [step, line] : lines) {
    line["step"] = Json::Int64(step);
    text += Json::writeString(builder, line) + "\n";
  }
  return text;
}

}  // namespace moetwin
