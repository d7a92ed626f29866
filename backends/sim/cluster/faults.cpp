#include "backends/sim/cluster/faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "backends/sim/cluster/figures.h"
#include "core/base/philox.h"

namespace moetwin {
namespace {

constexpr const char* kNames[] = {"gpu", "nvlink", "nic"};
constexpr const char* kKeys[] = {"what",         "rank",       "left",
                                 "from_seconds", "to_seconds", "mean_seconds_between",
                                 "for_seconds",  "seed"};
/// Where a drawn fault does not say until when: an hour.
constexpr double kDrawnFor = 3600;

const char* problem_of(const Json::Value& entry) {
  if (!entry.isObject()) return "must be an object";
  for (const std::string& key : entry.getMemberNames())
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys))
      return "has a key that is not known; legal: what, rank, left, from_seconds, to_seconds, "
             "mean_seconds_between, for_seconds, seed";
  const std::string what = entry["what"].isString() ? entry["what"].asString() : "";
  if (std::find(std::begin(kNames), std::end(kNames), what) == std::end(kNames))
    return "\"what\" must be \"gpu\", \"nvlink\" or \"nic\"";
  const bool drawn = entry.isMember("mean_seconds_between");
  if ((entry.isMember("rank") || !drawn) &&
      (!entry["rank"].isInt64() || entry["rank"].asInt64() < 0))
    return "\"rank\" must be a whole number, 0 or more";
  for (const char* key : {"mean_seconds_between", "for_seconds"})
    if (entry.isMember(key) && (!entry[key].isNumeric() || !(entry[key].asDouble() > 0)))
      return "\"mean_seconds_between\" and \"for_seconds\" must be numbers greater than 0";
  if (drawn != entry.isMember("for_seconds"))
    return "\"mean_seconds_between\" and \"for_seconds\" go together";
  if (entry.isMember("seed") && (!drawn || !entry["seed"].isInt64() || entry["seed"].asInt64() < 0))
    return "\"seed\" must be a whole number, 0 or more, beside \"mean_seconds_between\"";
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
  if (entry["left"].asDouble() == 0 && what == "nvlink" && !drawn && !entry.isMember("to_seconds"))
    return "a GPU whose link is lost for ever lets nothing end; give \"to_seconds\"";
  return nullptr;
}

}  // namespace

std::string fault_text(const Fault& f) {
  const char* what = kNames[static_cast<int>(f.what)];
  if (f.drawn()) {
    std::string text =
        f.rank < 0 ? fmt::format("every {}", what) : fmt::format("{} of rank {}", what, f.rank);
    text += fmt::format(" at {} for {} s about every {} s", f.left, f.lasting, f.mean_between);
    return f.seed == 1 ? text : text + fmt::format(" (seed {})", f.seed);
  }
  std::string text = fmt::format("{} of rank {} at {}", what, f.rank, f.left);
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
    f.rank = entry.get("rank", -1).asInt64();
    f.left = entry["left"].asDouble();
    f.from = entry.get("from_seconds", f.from).asDouble();
    if (entry.isMember("to_seconds")) f.to = entry["to_seconds"].asDouble();
    f.mean_between = entry.get("mean_seconds_between", 0).asDouble();
    f.lasting = entry.get("for_seconds", 0).asDouble();
    f.seed = entry.get("seed", 1).asInt64();
    if (f.drawn() && !std::isfinite(f.to)) f.to = f.from + kDrawnFor;
  }
  return faults;
}

std::vector<Fault> draw_faults(const Fault& fault, int64_t unit, int64_t rank) {
  const PhiloxKey key = philox_key(static_cast<uint64_t>(fault.seed), Purpose::workload,
                                   static_cast<uint32_t>(fault.what), static_cast<uint32_t>(unit));
  std::vector<Fault> drawn;
  double time = fault.from;
  for (uint64_t i = 0;; ++i) {
    time -= fault.mean_between * std::log(static_cast<double>(philox_uniform(key, i)));
    if (time >= fault.to) return drawn;
    Fault& f = drawn.emplace_back();
    f.what = fault.what;
    f.rank = rank;
    f.left = fault.left;
    f.from = time;
    f.to = time += fault.lasting;
  }
}

std::vector<RateChange> rate_changes(const std::vector<Fault>& faults) {
  struct Event {
    double time;
    size_t fault;
    bool begins;
  };
  std::vector<Event> events;
  for (size_t i = 0; i < faults.size(); ++i) {
    events.push_back({faults[i].from, i, true});
    if (std::isfinite(faults[i].to)) events.push_back({faults[i].to, i, false});
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& x, const Event& y) { return x.time < y.time; });
  std::vector<RateChange> changes;
  std::set<size_t> there;
  for (size_t e = 0; e < events.size();) {
    const double time = events[e].time;
    for (; e < events.size() && events[e].time == time; ++e)
      if (events[e].begins)
        there.insert(events[e].fault);
      else
        there.erase(events[e].fault);
    changes.push_back({time, 1});
    for (const size_t i : there) changes.back().share *= faults[i].left;
  }
  return changes;
}

}  // namespace moetwin
