#include <fmt/format.h>

#include <cmath>

#include "analysis/page/html.h"
#include "analysis/sweep/table.h"

namespace moetwin {

std::string sweep_page(const SweepPlan& plan, const std::vector<SweepPoint>& points,
                       const SweepFigure& figure) {
  Json::Value data(Json::objectValue), sweep(Json::objectValue);
  const std::string stem = plan.scenario.substr(plan.scenario.rfind('/') + 1);
  data["title"] = "Sweep of " + stem.substr(0, stem.rfind('.'));
  data["subtitle"] = fmt::format("{} points · {} · {}", points.size(),
                                 plan.combination == Combination::list ? "list" : "grid",
                                 plan.backend == "sim" ? "modelled cluster" : "real GPUs");
  data["footer"] =
      "Written by moetwin from sweep.json and the report.json of each point. Times of a modelled "
      "cluster are predictions. Charts: D3 (d3js.org), BSD licence.";
  sweep["rank_by"] = figure.name;
  for (const Axis& axis : plan.axes) {
    Json::Value entry;
    entry["key"] = axis.key;
    for (const std::string& value : axis.values) entry["values"].append(value);
    sweep["axes"].append(entry);
  }
  for (const SweepFigure& f : sweep_figures()) {
    Json::Value entry;
    entry["name"] = f.name;
    entry["title"] = f.title;
    entry["unit"] = f.unit;
    entry["better"] = f.better;
    sweep["figures"].append(entry);
  }
  for (const SweepPoint& point : points) {
    Json::Value entry;
    entry["index"] = Json::UInt64(point.index);
    for (const Axis& axis : plan.axes) entry["values"].append(point.value(axis));
    entry["state"] = point_state_name(point.state);
    entry["message"] = point.message;
    entry["verdicts"] = sweep_verdicts(point);
    entry["directory"] = point.directory;
    Json::Value& figures = entry["figures"] = Json::Value(Json::objectValue);
    Json::Value& texts = entry["texts"] = Json::Value(Json::objectValue);
    for (const SweepFigure& f : sweep_figures()) {
      const double value = sweep_value(point, f);
      if (std::isnan(value)) continue;
      figures[f.name] = value;
      texts[f.name] = sweep_text(value, f);
    }
    sweep["points"].append(entry);
  }
  data["sweep"] = sweep;
  return page_html(data["title"].asString(), data);
}

}  // namespace moetwin
