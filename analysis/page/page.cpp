#include "analysis/page/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/compare/compare.h"
#include "analysis/compare/render.h"
#include "analysis/page/html.h"
#include "analysis/page/sections.h"
#include "core/base/error.h"
#include "core/base/units.h"
#include "core/record/output_file.h"

namespace moetwin {

namespace {

std::string interval(const Difference& d) {
  if (!d.test.judged || d.standing == Standing::equal || !std::isfinite(d.low)) return "";
  return fmt::format("{:+.2f}% to {:+.2f}%", 100 * d.low, 100 * d.high);
}

Json::Value pair_json(const Comparison& c, size_t i) {
  const PairComparison& pair = c.pairs[i];
  Json::Value json(Json::objectValue);
  json["a"] = c.runs[0].name;
  json["b"] = c.runs[i + 1].name;
  json["headline"] = pair.headline;
  json["figures"] = Json::Value(Json::arrayValue);
  for (const Difference& d : pair.differences) {
    if (d.a.value == 0 && d.b.value == 0 && d.standing == Standing::equal) continue;
    Json::Value f(Json::objectValue);
    f["group"] = d.a.group;
    f["name"] = d.a.name;
    f["source"] = d.a.source;
    f["a"] = figure_text(d.a);
    f["b"] = figure_text(d.b);
    f["change"] = d.standing == Standing::equal ? "0"
                  : std::isfinite(d.relative)   ? fmt::format("{:+.2f}%", 100 * d.relative)
                                                : "";
    f["interval"] = interval(d);
    f["standing"] = standing_name(d.standing);
    f["beyond"] = d.standing == Standing::beyond;
    f["why"] = d.why;
    json["figures"].append(f);
  }
  json["scenario_known"] = pair.scenario_known;
  json["scenario"] = Json::Value(Json::arrayValue);
  for (const KeyDifference& d : pair.scenario) {
    Json::Value row(Json::arrayValue);
    for (const std::string& cell : {d.key, d.a, d.b}) row.append(cell);
    json["scenario"].append(row);
  }
  if (!pair.ops.any) return json;
  json["ops"]["sentence"] = fmt::format(
      "{} of {} ops stand at the same place in both lists.{}", pair.ops.aligned,
      std::max(pair.ops.ops_a, pair.ops.ops_b),
      pair.ops.first_mismatch.empty() ? "" : " First that do not: " + pair.ops.first_mismatch);
  json["ops"]["rows"] = Json::Value(Json::arrayValue);
  for (size_t k = 0; k < std::min<size_t>(20, pair.ops.classes.size()); ++k) {
    const OpClass& op = pair.ops.classes[k];
    Json::Value row(Json::arrayValue);
    row.append(fmt::format("{}{}, {}", op.name, op.group.empty() ? "" : " in " + op.group,
                           format_bytes(static_cast<double>(op.bytes))));
    row.append(fmt::format("{} / {}", op.a.calls, op.b.calls));
    row.append(format_seconds(op.a.seconds));
    row.append(format_seconds(op.b.seconds));
    row.append(std::isnan(op.ratio()) ? "" : fmt::format("{:+.1f}%", 100 * (op.ratio() - 1)));
    json["ops"]["rows"].append(row);
  }
  return json;
}

std::string subtitle(const Run& run) {
  const Json::Value& r = run.report;
  std::string text;
  const auto add = [&](const std::string& part) {
    if (!part.empty()) text += (text.empty() ? "" : " · ") + part;
  };
  add(r["backend"].asString() == "sim"    ? "modelled cluster"
      : r["backend"].asString() == "cuda" ? "real GPUs"
                                          : r["backend"].asString());
  add(r["cluster"].asString());
  if (r["seed"].isIntegral()) add(fmt::format("seed {}", r["seed"].asInt64()));
  return text;
}

}  // namespace

std::string report_page(const std::vector<Run>& runs) {
  require(!runs.empty(), "a page has runs");
  Json::Value data(Json::objectValue);
  std::string names;
  for (const Run& run : runs) {
    data["runs"].append(run_section(run));
    names += (names.empty() ? "" : ", ") + run.name;
  }
  const std::string title = runs.size() == 1 ? names : "Comparison of " + names;
  data["title"] = title;
  data["subtitle"] = runs.size() == 1 ? subtitle(runs[0]) : fmt::format("{} runs", runs.size());
  data["footer"] =
      "Written by moetwin from report.json, steps.csv, routing.csv, probe.csv and timeline.json of "
      "the run directory; every chart names its file and column. Times of a modelled cluster are "
      "predictions. Charts: D3 (d3js.org), BSD licence.";
  if (runs.size() > 1) {
    const Comparison comparison = compare(runs);
    for (size_t i = 0; i < comparison.pairs.size(); ++i)
      data["comparison"]["pairs"].append(pair_json(comparison, i));
  }
  return page_html(title, data);
}

std::string write_report_page(const std::string& directory) {
  const Run run = read_run(directory);
  const std::string path = run.file("report.html");
  OutputFile file(path);
  file.write(report_page({run}));
  file.commit();
  return path;
}

}  // namespace moetwin
