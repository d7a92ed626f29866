#include "analysis/compare/correction.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace moetwin {

namespace {

using Key = std::tuple<std::string, std::string, int64_t>;

struct Class {
  int64_t calls = 0;
  double seconds = 0;
};

/// One collective call as its ranks saw it.
struct Call {
  double shortest = INFINITY, bytes = 0;
  int64_t ranks = 0;
};

std::map<Key, Class> classes_of(const OpLists& lists) {
  std::map<Key, Class> classes;
  std::map<std::tuple<std::string, std::string, int64_t, int64_t>, Call> calls;
  std::map<int64_t, int> ranks;
  for (const auto& [place, ops] : lists) {
    if (place.second < 0) continue;  // the host thread
    ranks[place.first];
    std::map<std::pair<std::string, std::string>, int64_t> nth;
    for (const ListedOp& op : ops) {
      if (op.group.empty()) {
        Class& c = classes[{op.name, op.group, op.bytes}];
        ++c.calls;
        c.seconds += op.seconds;
        continue;
      }
      Call& call = calls[{op.name, op.group, place.second, nth[{op.name, op.group}]++}];
      call.shortest = std::min(call.shortest, op.seconds);
      call.bytes += static_cast<double>(op.bytes);
      ++call.ranks;
    }
  }
  // Of one rank, as collectives are.
  const auto n = static_cast<int64_t>(std::max<size_t>(1, ranks.size()));
  for (auto& [key, c] : classes) {
    c.calls = std::max<int64_t>(1, c.calls / n);
    c.seconds /= static_cast<double>(n);
  }
  for (const auto& [key, call] : calls) {
    const int64_t bytes = std::llround(call.bytes / static_cast<double>(call.ranks));
    Class& c = classes[{std::get<0>(key), std::get<1>(key), bytes}];
    ++c.calls;
    c.seconds += call.shortest;
  }
  return classes;
}

}  // namespace

std::vector<Correction> corrections(const OpLists& predicted, const OpLists& measured) {
  const std::map<Key, Class> before = classes_of(predicted), after = classes_of(measured);
  std::vector<Correction> found;
  for (const auto& [key, m] : after) {
    const auto at = before.find(key);
    if (at == before.end() || at->second.seconds <= 0 || m.seconds <= 0) continue;
    const Class& p = at->second;
    Correction c;
    std::tie(c.op, c.group, c.bytes) = key;
    c.calls = m.calls;
    c.measured = m.seconds;
    // Per call: one list may hold more steps than the other.
    c.predicted = p.seconds / static_cast<double>(p.calls) * static_cast<double>(m.calls);
    found.push_back(c);
  }
  return found;
}

Json::Value corrected_profile(Json::Value profile, const std::vector<Correction>& corrections,
                              const std::string& source) {
  std::map<Key, double> before;
  Json::Value list(Json::arrayValue);
  for (const Json::Value& entry : profile["corrections"])
    before[{entry["op"].asString(), entry["group"].asString(), entry["bytes"].asInt64()}] =
        entry["factor"].asDouble();
  std::map<Key, Json::Value> entries;
  for (const Json::Value& entry : profile["corrections"])
    entries[{entry["op"].asString(), entry["group"].asString(), entry["bytes"].asInt64()}] = entry;
  for (const Correction& c : corrections) {
    const Key key{c.op, c.group, c.bytes};
    const auto had = before.find(key);
    Json::Value entry(Json::objectValue);
    entry["op"] = c.op;
    if (!c.group.empty()) entry["group"] = c.group;
    entry["bytes"] = Json::Int64(c.bytes);
    entry["factor"] = c.factor() * (had == before.end() ? 1 : had->second);
    entry["source"] = source;
    entries[key] = entry;
  }
  for (const auto& [key, entry] : entries) list.append(entry);
  profile["corrections"] = list;
  return profile;
}

}  // namespace moetwin
