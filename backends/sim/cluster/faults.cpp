#include "backends/sim/cluster/faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backends/sim/cluster/figures.h"

namespace moetwin {
namespace {

constexpr const char* kNames[] = {"gpu", "nvlink", "nic"};

const char* problem_of(const Json::Value& entry) {
  if (!entry.isObject()) return "must be an object";
  for (const std::string& key : entry.getMemberNames())
    if (key != "what" && key != "rank" && key != "left" && key != "from_seconds" &&
        key != "to_seconds")
      return "has a key that is not known; legal: what, rank, left, from_seconds, to_seconds";
  const std::string what = entry["what"].isString() ? entry["what"].asString() : "";
  if (std::find(std::begin(kNames), std::end(kNames), what) == std::end(kNames))
    return "\"what\" must be \"gpu\", \"nvlink\" or \"nic\"";
  if (!entry["rank"].isInt64() || entry["rank"].asInt64() < 0)
    return "\"rank\" must be a whole number, 0 or more";
  if (!entry["left"].isNumeric() || !(entry["left"].asDouble() >= 0) ||
      entry["left"].asDouble() > 1)
    return "\"left\" must be a share of the rate from 0 to 1";
  for (const char* key : {"from_seconds", "to_seconds"})
    if (entry.isMember(key) && (!entry[key].isNumeric() || !(entry[key].asDouble() >= 0)))
      return "\"from_seconds\" and \"to_seconds\" must be numbers, 0 or more";
  if (entry.isMember("to_seconds") &&
      entry["to_seconds"].asDouble() <= entry.get("from_seconds", 0).asDouble())
    return "\"to_seconds\" must be after \"from_seconds\"";
  if (entry["left"].asDouble() == 0 && what == "gpu")
    return "a GPU with nothing left never ends; \"left\" must be greater than 0";
  if (entry["left"].asDouble() == 0 && !entry.isMember("to_seconds"))
    return "a link that is lost for ever lets nothing end; give \"to_seconds\"";
  return nullptr;
}

}  // namespace

std::string fault_text(const Fault& f) {
  std::string text =
      fmt::format("{} of rank {} at {}", kNames[static_cast<int>(f.what)], f.rank, f.left);
  if (f.from > 0) text += fmt::format(" from {} s", f.from);
  if (std::isfinite(f.to)) text += fmt::format(" to {} s", f.to);
  return text;
}

std::vector<Fault> read_faults(Figures& in) {
  std::vector<Fault> faults;
  const Json::Value* list = in.any("faults");
  if (!list) return faults;
  if (!list->isArray()) {
    in.fault("faults", "must be a list");
    return faults;
  }
  for (Json::ArrayIndex i = 0; i < list->size(); ++i) {
    const Json::Value& entry = (*list)[i];
    if (const char* problem = problem_of(entry)) {
      in.fault(fmt::format("faults[{}]", i), problem);
      continue;
    }
    Fault& f = faults.emplace_back();
    while (entry["what"].asString() != kNames[static_cast<int>(f.what)])
      f.what = static_cast<Fault::What>(static_cast<int>(f.what) + 1);
    f.rank = entry["rank"].asInt64();
    f.left = entry["left"].asDouble();
    f.from = entry.get("from_seconds", f.from).asDouble();
    if (entry.isMember("to_seconds")) f.to = entry["to_seconds"].asDouble();
  }
  return faults;
}

std::vector<RateChange> rate_changes(const std::vector<Fault>& faults) {
  std::vector<RateChange> changes;
  for (const Fault& f : faults)
    for (const double time : {f.from, f.to})
      if (std::isfinite(time)) changes.push_back({time, 1});
  std::sort(changes.begin(), changes.end(),
            [](const RateChange& a, const RateChange& b) { return a.time < b.time; });
  for (RateChange& change : changes)
    for (const Fault& f : faults)
      if (f.from <= change.time && change.time < f.to) change.share *= f.left;
  return changes;
}

}  // namespace moetwin
