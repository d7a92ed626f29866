#include "analysis/compare/op_list.h"

#include <fmt/format.h>
#include <json/reader.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "core/base/error.h"

namespace moetwin {

OpLists read_op_lists(const Run& run) {
  return run.has_file("timeline.json") ? read_op_lists(run.file("timeline.json")) : OpLists{};
}

OpLists read_op_lists(const std::string& path) {
  OpLists lists;
  std::ifstream in(path);
  Json::Value json;
  std::string fault;
  if (!Json::parseFromStream(Json::CharReaderBuilder(), in, &json, &fault) ||
      !json["traceEvents"].isArray())
    throw Error(ErrorClass::configuration, fmt::format("{}: is no Chrome trace: {}", path, fault));
  for (const Json::Value& event : json["traceEvents"]) {
    if (event["ph"].asString() != "X") continue;
    ListedOp op;
    op.name = event["name"].asString();
    op.activity = event["cat"].asString();
    const Json::Value& arguments = event["args"];
    op.group = arguments["group"].asString();
    op.phase = arguments["phase"].asString();
    op.bytes = arguments["bytes"].asInt64();
    op.step = arguments["step"].asInt64();
    op.start = event["ts"].asDouble() * 1e-6;
    op.seconds = event["dur"].asDouble() * 1e-6;
    lists[{event["pid"].asInt64(), event["tid"].asInt64() - 1}].push_back(op);
  }
  for (auto& [place, ops] : lists)
    std::stable_sort(ops.begin(), ops.end(),
                     [](const ListedOp& a, const ListedOp& b) { return a.start < b.start; });
  return lists;
}

double OpClass::ratio() const {
  if (a.calls == 0 || b.calls == 0 || a.seconds <= 0)
    return std::numeric_limits<double>::quiet_NaN();
  return b.seconds / static_cast<double>(b.calls) / (a.seconds / static_cast<double>(a.calls));
}

namespace {

std::string text(const ListedOp& op) {
  return fmt::format("{}{} of {} bytes", op.name, op.group.empty() ? "" : " in " + op.group,
                     op.bytes);
}

bool same(const ListedOp& a, const ListedOp& b) {
  return a.name == b.name && a.group == b.group && a.bytes == b.bytes;
}

// How the host thread's time falls into stretches is no part of what is launched.
bool is_host(const std::pair<int64_t, int64_t>& place) { return place.second < 0; }

using Key = std::tuple<std::string, std::string, int64_t>;

void add(const OpLists& lists, OpClass::Side OpClass::*side, std::map<Key, OpClass>& classes) {
  for (const auto& [place, ops] : lists) {
    if (is_host(place)) continue;
    for (const ListedOp& op : ops) {
      OpClass& c = classes[{op.name, op.group, op.bytes}];
      c.name = op.name;
      c.group = op.group;
      c.activity = op.activity;
      c.bytes = op.bytes;
      ++(c.*side).calls;
      (c.*side).seconds += op.seconds;
    }
  }
}

}  // namespace

Alignment align(const OpLists& a, const OpLists& b) {
  Alignment result;
  result.any = !a.empty() && !b.empty();
  if (!result.any) return result;
  std::map<std::pair<int64_t, int64_t>, int> places;
  for (const auto& [place, ops] : a)
    if (!is_host(place)) places[place], result.ops_a += static_cast<int64_t>(ops.size());
  for (const auto& [place, ops] : b)
    if (!is_host(place)) places[place], result.ops_b += static_cast<int64_t>(ops.size());
  const std::vector<ListedOp> none;
  for (const auto& [place, unused] : places) {
    const auto in_a = a.find(place), in_b = b.find(place);
    const std::vector<ListedOp>&left = in_a == a.end() ? none : in_a->second,
          &right = in_b == b.end() ? none : in_b->second;
    for (size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
      const bool both = i < left.size() && i < right.size();
      if (both && same(left[i], right[i])) {
        ++result.aligned;
      } else if (result.first_mismatch.empty()) {
        result.first_mismatch =
            fmt::format("rank {}, stream {}, op {}: {} against {}", place.first, place.second,
                        i + 1, i < left.size() ? text(left[i]) : "nothing",
                        i < right.size() ? text(right[i]) : "nothing");
      }
    }
  }
  std::map<Key, OpClass> classes;
  add(a, &OpClass::a, classes);
  add(b, &OpClass::b, classes);
  for (auto& [key, c] : classes) result.classes.push_back(c);
  std::stable_sort(
      result.classes.begin(), result.classes.end(), [](const OpClass& x, const OpClass& y) {
        return std::abs(x.b.seconds - x.a.seconds) > std::abs(y.b.seconds - y.a.seconds);
      });
  return result;
}

}  // namespace moetwin
