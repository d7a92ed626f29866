#include "analysis/compare/figures.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace moetwin {

namespace {

struct ColumnFigure {
  const char *group, *column, *unit;
  int better;
  bool learned;
};

constexpr ColumnFigure kColumns[] = {
    {"throughput", "step_seconds", "s", -1, false},
    {"throughput", "tokens_per_second", "tokens/s", 1, false},
    {"step parts", "compute_seconds", "s", -1, false},
    {"step parts", "all_to_all_seconds", "s", -1, false},
    {"step parts", "other_communication_seconds", "s", -1, false},
    {"step parts", "offload_seconds", "s", -1, false},
    {"step parts", "bubble_seconds", "s", -1, false},
    {"step parts", "host_seconds", "s", -1, false},
    {"step parts", "data_seconds", "s", -1, false},
    {"step parts", "idle_seconds", "s", -1, false},
    {"step parts", "forward_seconds", "s", -1, false},
    {"step parts", "backward_seconds", "s", -1, false},
    {"step parts", "recompute_seconds", "s", -1, false},
    {"step parts", "optimizer_seconds", "s", -1, false},
    {"step parts", "all_to_all_hidden_seconds", "s", 0, false},
    {"step parts", "other_communication_hidden_seconds", "s", 0, false},
    {"traffic", "all_to_all_bytes", "bytes", -1, false},
    {"traffic", "all_reduce_bytes", "bytes", -1, false},
    {"traffic", "reduce_scatter_bytes", "bytes", -1, false},
    {"traffic", "all_gather_bytes", "bytes", -1, false},
    {"traffic", "host_syncs", "", -1, false},
    {"routing", "load_cv", "", -1, true},
    {"routing", "imbalance_experts", "", -1, true},
    {"routing", "imbalance_ranks", "", -1, true},
    {"routing", "entropy", "", 1, true},
    {"routing", "dead_share", "", -1, true},
    {"routing", "dropped_share", "", -1, true},
    {"loss", "loss", "nats", -1, true},
    {"loss", "aux_loss", "", -1, true},
    {"loss", "z_loss", "", -1, true},
    {"loss", "grad_norm", "", 0, true},
};

void add_columns(const Run& run, std::vector<Figure>& figures) {
  if (run.steps.rows() == 0) return;
  const double warmup = report_number(run.report, "throughput.warmup_steps_excluded");
  const auto from =
      std::min(run.steps.rows() - 1, std::isnan(warmup) ? size_t{0} : static_cast<size_t>(warmup));
  const std::vector<double>& step = run.steps.column("step");
  for (const ColumnFigure& c : kColumns) {
    if (!run.steps.has(c.column)) continue;
    Figure f{c.group, c.column, std::string("steps.csv ") + c.column,
             c.unit,  c.better, c.learned,
             0,       {},       {}};
    const std::vector<double>& values = run.steps.column(c.column);
    int64_t known = 0;
    for (size_t i = from; i < values.size(); ++i) {
      f.steps.push_back(step[i]);
      f.series.push_back(values[i]);
      if (std::isfinite(values[i])) f.value += values[i], ++known;
    }
    if (known == 0) continue;
    f.value /= static_cast<double>(known);
    figures.push_back(f);
  }
}

void add_value(const Run& run, const char* group, const std::string& path, const char* unit,
               int better, bool learned, std::vector<Figure>& figures) {
  const double value = report_number(run.report, path);
  if (std::isnan(value)) return;
  figures.push_back({group, path, "report.json " + path, unit, better, learned, value, {}, {}});
}

}  // namespace

std::vector<Figure> figures_of(const Run& run) {
  std::vector<Figure> figures;
  add_columns(run, figures);
  add_value(run, "throughput", "throughput.step_seconds_median", "s", -1, false, figures);
  add_value(run, "throughput", "throughput.mfu", "", 1, false, figures);
  add_value(run, "throughput", "throughput.hfu", "", 1, false, figures);
  add_value(run, "loss", "loss.validation_last", "nats", -1, true, figures);
  const Json::Value& peaks = run.report["memory"]["peak_bytes_per_rank"];
  double highest = 0;
  for (const Json::Value& peak : peaks) highest = std::max(highest, peak.asDouble());
  if (!peaks.empty())
    figures.push_back({"memory",
                       "memory.peak_bytes_per_rank",
                       "report.json "
                       "memory.peak_bytes_per_rank (highest)",
                       "bytes",
                       -1,
                       false,
                       highest,
                       {},
                       {}});
  const Json::Value& classes = run.report["memory"]["classes"];
  if (classes.isObject())
    for (const std::string& name : classes.getMemberNames())
      add_value(run, "memory", "memory.classes." + name, "bytes", -1, false, figures);
  const Json::Value& traffic = run.report["traffic"];
  if (traffic.isObject())
    for (const std::string& name : traffic.getMemberNames())
      if (name.find("off_node") != name.npos)
        add_value(run, "traffic", "traffic." + name, "bytes", -1, false, figures);
  add_value(run, "throughput", "cost.gpu_hours", "h", -1, false, figures);
  const auto place = [](const Figure& f) {
    const char* order[] = {"throughput", "step parts", "memory", "traffic", "routing", "loss"};
    return std::find(std::begin(order), std::end(order), f.group) - std::begin(order);
  };
  std::stable_sort(figures.begin(), figures.end(),
                   [&](const Figure& x, const Figure& y) { return place(x) < place(y); });
  return figures;
}

}  // namespace moetwin
