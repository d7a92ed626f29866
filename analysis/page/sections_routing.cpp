#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/page/sampling.h"
#include "analysis/page/sections.h"

namespace moetwin {

namespace {

constexpr size_t kCells = 400000;  // of all heat maps of a run together: some 1.6 MB
constexpr size_t kMatrixLayers = 16, kMatrixRanks = 64, kChurnLayers = 6;

std::vector<double> as_doubles(const std::vector<int64_t>& v) { return {v.begin(), v.end()}; }

}  // namespace

Json::Value loads_section(const Run& run) {
  Json::Value list(Json::arrayValue);
  size_t rows = 0;
  for (const LayerSeries& layer : run.routing.layers) rows += static_cast<size_t>(layer.experts);
  for (const LayerSeries& layer : run.routing.layers) {
    if (layer.size() == 0) continue;
    const size_t columns = std::clamp<size_t>(kCells / std::max<size_t>(1, rows), 40, 360);
    const std::vector<Bucket> cells = buckets(layer.size(), columns);
    const auto experts = static_cast<size_t>(layer.experts);
    Json::Value json(Json::objectValue);
    json["layer"] = Json::Int64(layer.layer);
    json["experts"] = Json::Int64(layer.experts);
    json["width"] = Json::UInt64(cells.front().last - cells.front().first);
    json["load"] = Json::Value(Json::arrayValue);
    json["load"].resize(static_cast<Json::ArrayIndex>(experts));
    for (const Bucket& cell : cells) {
      json["steps"].append(Json::Int64(layer.steps[cell.first]));
      std::vector<double> sum(experts);
      double all = 0;
      for (size_t t = cell.first; t < cell.last; ++t)
        for (size_t e = 0; e < experts; ++e) sum[e] += layer.load[t * experts + e];
      for (double v : sum) all += v;
      for (size_t e = 0; e < experts; ++e) {
        const double relative = all > 0 ? sum[e] * static_cast<double>(experts) / all : 0;
        json["load"][static_cast<Json::ArrayIndex>(e)].append(
            Json::Int64(std::llround(std::min(9999.0, 100 * relative))));
      }
    }
    list.append(json);
  }
  return list;
}

Json::Value matrix_section(const Run& run) {
  Json::Value list(Json::arrayValue);
  const int64_t known_columns = run.grid ? run.grid->expert_sharding() : 0;
  for (const LayerSeries& layer : run.routing.layers) {
    const SourceCounts& s = layer.sources;
    if (s.ranks.size() < 2 || list.size() >= kMatrixLayers) continue;
    const bool fits = known_columns > 0 && layer.experts % known_columns == 0;
    const int64_t columns = fits ? known_columns : std::min<int64_t>(layer.experts, 64);
    const int64_t each = (layer.experts + columns - 1) / columns;
    Json::Value json(Json::objectValue);
    json["layer"] = Json::Int64(layer.layer);
    json["step"] = Json::Int64(s.step);
    json["columns"] = Json::Int64(columns);
    for (size_t r = 0; r < std::min(kMatrixRanks, s.ranks.size()); ++r) {
      json["ranks"].append(Json::Int64(s.ranks[r]));
      std::vector<double> row(static_cast<size_t>(columns));
      for (int64_t e = 0; e < layer.experts; ++e)
        row[static_cast<size_t>(e / each)] +=
            s.assigned[r * static_cast<size_t>(layer.experts) + static_cast<size_t>(e)];
      Json::Value values(Json::arrayValue);
      for (double v : row) values.append(Json::Int64(v));
      json["values"].append(values);
    }
    list.append(json);
  }
  return list;
}

Json::Value probe_section(const Run& run, std::vector<double> ProbeSeries::*figure) {
  std::vector<std::pair<double, const LayerSeries*>> moving;
  for (const LayerSeries& layer : run.routing.layers) {
    double sum = 0;
    bool known = false;
    for (double c : layer.probe.*figure)
      if (std::isfinite(c)) sum += c, known = true;
    if (layer.probe.size() > 1 && known) moving.emplace_back(-sum, &layer);
  }
  if (moving.empty()) return {};
  std::stable_sort(moving.begin(), moving.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  moving.resize(std::min(moving.size(), kChurnLayers));
  std::stable_sort(moving.begin(), moving.end(),
                   [](const auto& a, const auto& b) { return a.second->layer < b.second->layer; });
  Json::Value list(Json::arrayValue);
  for (const auto& [sum, layer] : moving) {
    Json::Value json = sampled(as_doubles(layer->probe.steps), layer->probe.*figure, 600);
    json["layer"] = Json::Int64(layer->layer);
    list.append(json);
  }
  return list;
}

Json::Value marks_section(const StabilityReport& stability) {
  Json::Value list(Json::arrayValue);
  for (const Finding& f : stability.findings) {
    if (f.onset_step < 0 || list.size() >= 12) continue;
    for (const bool end : {false, true}) {
      if (end && f.end_step < 0) continue;
      Json::Value mark(Json::objectValue);
      mark["layer"] = Json::Int64(f.layer);
      mark["step"] = Json::Int64(end ? f.end_step : f.onset_step);
      mark["text"] = (end ? "end of " : "") + f.kind;
      list.append(mark);
    }
  }
  return list;
}

}  // namespace moetwin
