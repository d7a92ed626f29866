#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "analysis/compare/op_list.h"
#include "analysis/page/sampling.h"
#include "analysis/page/sections.h"
#include "core/base/units.h"
#include "core/record/op_table.h"

namespace moetwin {

namespace {

constexpr size_t kRanks = 64, kLayoutRanks = 128, kTimelineRanks = 8, kEvents = 3000;

/// Evenly picked indices of 0 .. n-1.
std::vector<size_t> picked(size_t n, size_t most) {
  std::vector<size_t> list;
  const size_t shown = std::min(n, most);
  for (size_t i = 0; i < shown; ++i) list.push_back(i * n / shown);
  return list;
}

Json::Value row(const std::string& name, const Json::Value& values) {
  Json::Value json(Json::objectValue);
  json["name"] = name;
  json["values"] = values;
  return json;
}

}  // namespace

Json::Value parts_section(const Run& run) {
  const Json::Value& ranks = run.report["step_parts_seconds_per_rank"];
  const Json::Value& mean = run.report["step_parts_seconds"];
  if (!mean.isObject()) return {};
  Json::Value json(Json::objectValue);
  json["step"] = run.report["median_step"];
  json["mean"] = mean;
  const size_t world = ranks.isObject() ? ranks["compute"].size() : 0;
  json["world"] = Json::UInt64(world);
  json["rows"] = Json::Value(Json::arrayValue);
  for (size_t r : picked(world, kRanks)) {
    Json::Value values(Json::objectValue);
    for (const std::string& part : ranks.getMemberNames())
      values[part] = rounded(ranks[part][static_cast<Json::ArrayIndex>(r)].asDouble());
    json["rows"].append(row(fmt::format("rank {}", r), values));
  }
  json["shown"] = json["rows"].size();
  if (world == 0) json["rows"].append(row("mean", mean));
  return json;
}

Json::Value profile_section(const Run& run) {
  const Json::Value& profile = run.report["profile"];
  if (!profile.isObject() || profile["ops"].empty() || profile["steps"].empty()) return {};
  Json::Value json(Json::objectValue);
  std::vector<int64_t> steps;
  for (const Json::Value& step : profile["steps"]) steps.push_back(step.asInt64());
  json["steps"] = steps_text(steps);
  json["ranks"] = profile["ranks"];
  json["device_seconds"] = rounded(profile["device_seconds"].asDouble());
  // Shares of one rank in one step: what the busiest is set against.
  const double places = profile["ranks"].asDouble() * static_cast<double>(steps.size());
  for (const Json::Value& op : profile["ops"]) {
    Json::Value row(Json::objectValue);
    for (const char* key : {"op", "activity", "calls", "most_rank"}) row[key] = op[key];
    for (const char* key : {"total_seconds", "mean_seconds", "share"})
      row[key] = rounded(op[key].asDouble());
    row["busiest"] = rounded(op["most_seconds_of_a_rank_and_step"].asDouble() * places /
                             op["total_seconds"].asDouble());
    json["ops"].append(row);
  }
  return json;
}

Json::Value memory_section(const Run& run) {
  const Json::Value& memory = run.report["memory"];
  const Json::Value& peaks = memory["peak_bytes_per_rank"];
  if (peaks.empty()) return {};
  Json::Value json(Json::objectValue);
  json["rows"] = Json::Value(Json::arrayValue);
  for (size_t r : picked(peaks.size(), kRanks)) {
    Json::Value values(Json::objectValue);
    values["peak"] = peaks[static_cast<Json::ArrayIndex>(r)];
    json["rows"].append(row(fmt::format("rank {}", r), values));
  }
  json["capacity"] = memory["capacity_bytes"];
  json["fullest"] = memory["fullest_rank"];
  json["classes"] = Json::Value(Json::arrayValue);
  if (memory["classes"].isObject())
    for (const std::string& name : memory["classes"].getMemberNames()) {
      if (memory["classes"][name].asDouble() <= 0) continue;
      Json::Value values(Json::objectValue);
      values["bytes"] = memory["classes"][name];
      json["classes"].append(row(name, values));
    }
  json["about"] =
      "The largest sum over all classes of memory during the run" +
      (peaks.size() > kRanks ? fmt::format("; {} of {} ranks, evenly picked.", kRanks, peaks.size())
                             : std::string("."));
  return json;
}

Json::Value traffic_section(const Run& run) {
  Json::Value list(Json::arrayValue);
  const Json::Value& traffic = run.report["traffic"];
  if (!traffic.isObject()) return list;
  const std::string ending = "_bytes_per_step", off = "_off_node";
  for (const std::string& key : traffic.getMemberNames()) {
    if (!key.ends_with(ending) || !traffic[key].isNumeric()) continue;
    const std::string kind = key.substr(0, key.size() - ending.size());
    if (kind.ends_with(off) || traffic[key].asDouble() <= 0) continue;
    const Json::Value& between = traffic[kind + off + ending];
    const double away = between.isNumeric() ? between.asDouble() : 0;
    Json::Value values(Json::objectValue);
    values["in_node"] = rounded(traffic[key].asDouble() - away, 7);
    values["between_nodes"] = rounded(away, 7);
    std::string name = kind;
    std::replace(name.begin(), name.end(), '_', '-');
    list.append(row(name, values));
  }
  return list;
}

Json::Value collectives_section(const Run& run) {
  Json::Value list(Json::arrayValue);
  const Json::Value& traffic = run.report["traffic"];
  if (!traffic.isObject()) return list;
  for (const Json::Value& line : traffic["collectives"]) {
    Json::Value row(Json::objectValue);
    std::string kind = line["collective"].asString();
    std::replace(kind.begin(), kind.end(), '_', '-');
    row["collective"] = kind;
    for (const char* key : {"purpose", "group", "group_size", "algorithm"}) row[key] = line[key];
    const auto figure = [&](const char* name, const char* of) {
      row[name] =
          line[of].isNumeric() ? Json::Value(rounded(line[of].asDouble(), 7)) : Json::Value();
    };
    figure("calls", "calls_per_step");
    figure("bytes", "bytes_per_step");
    figure("off_node", "off_node_bytes_per_step");
    figure("seconds", "seconds_per_step");
    figure("bandwidth", "bus_bandwidth_bytes_per_second");
    list.append(row);
  }
  return list;
}

Json::Value layout_section(const Run& run) {
  if (!run.grid) return {};
  const Grid& grid = *run.grid;
  Json::Value json(Json::objectValue);
  const int64_t world = grid.world();
  const double told = report_number(run.report, "gpus_per_node");
  const int64_t nodes = run.scenario->cluster.nodes;
  const int64_t per_node = std::isfinite(told) && told >= 1 ? static_cast<int64_t>(told)
                           : nodes > 0                      ? (world + nodes - 1) / nodes
                                                            : std::min<int64_t>(8, world);
  json["world"] = Json::Int64(world);
  json["edp"] = Json::Int64(grid.edp());
  json["ep"] = Json::Int64(grid.ep());
  json["etp"] = Json::Int64(grid.etp());
  json["pp"] = Json::Int64(grid.pp());
  json["columns"] = Json::Int64(grid.expert_sharding());
  json["per_node"] = Json::Int64(per_node);
  const int64_t shown = std::min<int64_t>(world, kLayoutRanks);
  json["shown"] = Json::Int64(shown);
  for (int64_t rank = 0; rank < shown; ++rank) {
    const Coordinates at = grid.coordinates(rank);
    Json::Value entry(Json::objectValue);
    entry["rank"] = Json::Int64(rank);
    entry["node"] = Json::Int64(rank / per_node);
    entry["edp"] = Json::Int64(at.edp);
    entry["ep"] = Json::Int64(at.ep);
    entry["etp"] = Json::Int64(at.etp);
    entry["tp"] = Json::Int64(at.tp);
    entry["pp"] = Json::Int64(at.pp);
    entry["column"] = Json::Int64(grid.expert_column(at.ep));
    if (grid.local_experts() > 0) {
      const int64_t first = grid.first_expert(at.ep), last = first + grid.local_experts() - 1;
      entry["experts"] =
          first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
    }
    json["ranks"].append(entry);
  }
  return json;
}

Json::Value timeline_section(const Run& run) {
  const OpLists lists = read_op_lists(run);
  if (lists.empty()) return {};
  struct Event {
    int64_t rank, stream;
    const ListedOp* op;
  };
  std::vector<Event> events;
  std::set<int64_t> ranks;
  Json::Value json(Json::objectValue);
  double begin = std::numeric_limits<double>::infinity(), end = 0;
  for (const auto& [place, ops] : lists) {
    if (ranks.size() >= kTimelineRanks && !ranks.count(place.first)) continue;
    ranks.insert(place.first);
    Json::Value lane(Json::arrayValue);
    lane.append(Json::Int64(place.first));
    lane.append(Json::Int64(place.second));
    json["lanes"].append(lane);
    for (const ListedOp& op : ops) {
      events.push_back({place.first, place.second, &op});
      begin = std::min(begin, op.start);
      end = std::max(end, op.start + op.seconds);
    }
  }
  const size_t all = events.size();
  if (all > kEvents) {  // the longest, then again in their order
    std::stable_sort(events.begin(), events.end(),
                     [](const Event& a, const Event& b) { return a.op->seconds > b.op->seconds; });
    events.resize(kEvents);
  }
  json["left_out"] = Json::UInt64(all - events.size());
  json["end"] = rounded(end - begin, 7);
  json["step"] = Json::Int64(events.empty() ? 0 : events.front().op->step);
  for (int64_t rank : ranks) json["ranks"].append(Json::Int64(rank));
  std::map<std::string, int> index;
  const auto number = [&](const char* list, const std::string& name) {
    const auto [at, added] =
        index.emplace(std::string(list) + "/" + name, json[list].isArray() ? json[list].size() : 0);
    if (added) json[list].append(name);
    return at->second;
  };
  for (const Event& e : events) {
    Json::Value entry(Json::arrayValue);
    entry.append(Json::Int64(e.rank));
    entry.append(Json::Int64(e.stream));
    entry.append(rounded(e.op->start - begin, 7));
    entry.append(rounded(e.op->seconds, 4));
    entry.append(number("names", e.op->name));
    entry.append(number("activities", e.op->activity));
    entry.append(number("phases", e.op->phase));
    entry.append(Json::Int64(e.op->bytes));
    json["events"].append(entry);
  }
  return json;
}

}  // namespace moetwin
