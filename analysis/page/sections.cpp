#include "analysis/page/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/bottleneck.h"
#include "analysis/page/sampling.h"
#include "core/base/units.h"

namespace moetwin {

namespace {

constexpr size_t kPoints = 1000;

struct Facts {
  const Run& run;
  Json::Value list{Json::arrayValue};

  void add(const char* name, const std::string& text, const std::string& source) {
    Json::Value fact(Json::objectValue);
    fact["name"] = name;
    fact["text"] = text;
    fact["source"] = source;
    list.append(fact);
  }
  template <class Format>
  void number(const char* name, const char* path, Format&& format) {
    const double value = report_number(run.report, path);
    if (std::isfinite(value)) add(name, format(value), path);
  }
};

Json::Value column(const Run& run, const char* name) {
  if (!run.steps.has(name)) return {};
  const std::vector<double>& values = run.steps.column(name);
  if (std::none_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); }))
    return {};
  return sampled(run.steps.column("step"), values, kPoints);
}

}  // namespace

Json::Value facts_section(const Run& run) {
  Facts facts{run};
  const auto count = [](double v) { return format_count(std::round(v)); };
  facts.number("Tokens a second", "throughput.tokens_per_second", count);
  facts.number("Seconds a step", "throughput.step_seconds_median", format_seconds);
  facts.number("MFU", "throughput.mfu", [](double v) { return fmt::format("{:.1f}%", 100 * v); });
  facts.number("Loss at the end", "loss.last", [](double v) { return fmt::format("{:.4g}", v); });
  facts.number("Validation loss", "loss.validation_last",
               [](double v) { return fmt::format("{:.4g}", v); });
  facts.number("Steps", "steps_done", count);
  facts.number("GPUs", "world_size", count);
  facts.number("All-to-all a step", "traffic.all_to_all_bytes_per_step", format_bytes);
  facts.number("Lost to faults", "faults.share_lost",
               [](double v) { return fmt::format("{:.1f}%", 100 * v); });
  facts.number("GPU hours", "cost.gpu_hours", [](double v) { return fmt::format("{:.3g}", v); });
  double peak = 0;
  for (const Json::Value& v : run.report["memory"]["peak_bytes_per_rank"])
    peak = std::max(peak, v.asDouble());
  if (peak > 0) facts.add("Peak memory", format_bytes(peak), "memory.peak_bytes_per_rank, highest");
  return facts.list;
}

Json::Value run_section(const Run& run) {
  const StabilityReport stability =
      analyse_stability(run.routing, loss_series(run), stability_options(run));
  Json::Value json(Json::objectValue);
  json["name"] = run.name;
  json["facts"] = facts_section(run);
  json["verdicts"] = Json::Value(Json::arrayValue);
  std::set<std::string> told;
  for (const Finding& f : stability.findings) {
    json["verdicts"].append(finding_json(f));
    told.insert(f.kind);
  }
  // The run's own verdicts on other matters, such as memory.
  for (const Json::Value& verdict : run.report["verdicts"]) {
    const std::string kind = verdict["kind"].asString();
    if (kind == "stable" || told.count(kind)) continue;
    Json::Value entry = verdict;
    if (!verdict["advice"].asString().empty()) entry["advice_list"].append(verdict["advice"]);
    json["verdicts"].append(entry);
  }
  json["bottlenecks"] = Json::Value(Json::arrayValue);
  for (const Bottleneck& b : find_bottlenecks(run)) {
    Json::Value entry(Json::objectValue);
    entry["kind"] = b.kind;
    entry["title"] = b.kind + " bound";
    entry["evidence"] = b.evidence;
    for (const std::string& line : b.advice) entry["advice_list"].append(line);
    json["bottlenecks"].append(entry);
  }
  json["notes"] = Json::Value(Json::arrayValue);
  for (const std::string& note : stability.notes) json["notes"].append(note);
  // The report has those of the run's own analysis, which are the same.
  for (const Json::Value& note : run.report["notes"])
    if (std::count(stability.notes.begin(), stability.notes.end(), note.asString()) == 0)
      json["notes"].append(note);
  json["marks"] = marks_section(stability);
  json["loss"] = column(run, "loss");
  json["seconds"] = column(run, "step_seconds");
  const Json::Value experts = column(run, "imbalance_experts"),
                    ranks = column(run, "imbalance_ranks");
  if (experts.isObject() && ranks.isObject()) {
    json["imbalance"]["experts"] = experts;
    json["imbalance"]["ranks"] = ranks;
  }
  json["churn"] = probe_section(run, &ProbeSeries::churn);
  json["harm"] = probe_section(run, &ProbeSeries::harm);
  json["layers"] = loads_section(run);
  json["matrix"] = matrix_section(run);
  json["traffic"] = traffic_section(run);
  json["collectives"] = collectives_section(run);
  json["parts"] = parts_section(run);
  json["profile"] = profile_section(run);
  json["memory"] = memory_section(run);
  json["layout"] = layout_section(run);
  json["timeline"] = timeline_section(run);
  return json;
}

}  // namespace moetwin
