#include "analysis/plan/parallel.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <type_traits>

#include "analysis/batch/processes.h"
#include "core/base/error.h"

namespace moetwin {

namespace {

/// A result as bytes: texts are places in the space.
struct Packed {
  PlanLayout layout;
  size_t sharding, schedule, recompute, capacity, rebalancing;
  int64_t virtual_stages, micro_batch;
  bool cpu_offload, overlap;
  PlanFigures figures;
};
static_assert(std::is_trivially_copyable_v<Packed>);

struct Counts {
  int64_t combinations, refused, state_too_large, too_large, slower_by_rule, beaten, dominated,
      estimated;
  size_t fitting, rules;
  bool closest;
};
static_assert(std::is_trivially_copyable_v<Counts>);

template <class T>
size_t place(const std::vector<T>& values, const T& value) {
  return static_cast<size_t>(std::find(values.begin(), values.end(), value) - values.begin());
}

/// Of a stage-less layout the schedule may be none of the space's.
std::string schedule_at(const PlanSpace& space, size_t index) {
  return index < space.schedule.size() ? space.schedule[index] : PlanPoint().schedule;
}

Packed pack(const PlanSpace& space, const PlanResult& r) {
  const PlanPoint& p = r.point;
  return {p.layout,
          place(space.sharding, p.sharding),
          place(space.schedule, p.schedule),
          place(space.recompute, p.recompute),
          place(space.capacity_factor, p.capacity_factor),
          place(space.rebalancing, p.rebalancing),
          p.virtual_stages,
          p.micro_batch,
          p.cpu_offload,
          p.overlap,
          r.figures};
}

PlanResult unpack(const PlanSpace& space, const Packed& packed) {
  PlanResult r;
  r.point = {packed.layout,
             space.sharding[packed.sharding],
             schedule_at(space, packed.schedule),
             packed.virtual_stages,
             packed.micro_batch,
             space.recompute[packed.recompute],
             packed.cpu_offload,
             packed.overlap,
             space.capacity_factor[packed.capacity],
             packed.rebalancing < space.rebalancing.size() ? space.rebalancing[packed.rebalancing]
                                                           : PlanPoint().rebalancing};
  r.figures = packed.figures;
  return r;
}

class Writer {
 public:
  template <class T>
  void put(const T& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  std::string bytes;
};

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  template <class T>
  T get() {
    T value;
    require(at_ + sizeof(T) <= bytes_.size(), "a process sends whole results");
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::string text() {
    const auto size = get<size_t>();
    require(at_ + size <= bytes_.size(), "a process sends whole results");
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

 private:
  const std::string& bytes_;
  size_t at_ = 0;
};

std::string to_bytes(const PlanSpace& space, const PlanSearch& s) {
  Writer out;
  out.put(Counts{s.combinations, s.refused, s.state_too_large, s.too_large, s.slower_by_rule,
                 s.beaten, s.dominated, s.estimated, s.fitting.size(), s.refused_by.size(),
                 s.closest.has_value()});
  for (const PlanResult& r : s.fitting) out.put(pack(space, r));
  if (s.closest) out.put(pack(space, *s.closest));
  for (const auto& [rule, count] : s.refused_by) {
    out.put(rule.size());
    out.bytes += rule;
    out.put(count);
  }
  return out.bytes;
}

PlanSearch from_bytes(const PlanSpace& space, const std::string& bytes) {
  PlanSearch found;
  Reader in(bytes);
  const auto counts = in.get<Counts>();
  found.combinations = counts.combinations;
  found.refused = counts.refused;
  found.state_too_large = counts.state_too_large;
  found.too_large = counts.too_large;
  found.slower_by_rule = counts.slower_by_rule;
  found.beaten = counts.beaten;
  found.dominated = counts.dominated;
  found.estimated = counts.estimated;
  for (size_t i = 0; i < counts.fitting; ++i)
    found.fitting.push_back(unpack(space, in.get<Packed>()));
  if (counts.closest) found.closest = unpack(space, in.get<Packed>());
  for (size_t i = 0; i < counts.rules; ++i) {
    const std::string rule = in.text();
    found.refused_by[rule] = in.get<int64_t>();
  }
  return found;
}

}  // namespace

PlanSearch search_plan_in_processes(const Scenario& scenario, const PlanSpace& space,
                                    const PlanMachine& machine, const MakeEstimate& make,
                                    int processes) {
  if (processes <= 0)
    processes = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  ProcessOptions options;
  options.processes = processes;
  return search_plan_by(scenario, space, machine, [&](const std::vector<PlanTask>& tasks) {
    std::vector<PlanSearch> parts(tasks.size());
    std::vector<size_t> heavy;
    for (size_t i = 0; i < tasks.size(); ++i) {
      if (tasks[i].pass == PlanPass::count_rest)
        parts[i] = search_layout(scenario, space, tasks[i], machine, nullptr);
      else
        heavy.push_back(i);
    }
    // A layout a job: what they cost differs, and an estimator keeps little from one to the next.
    const auto results = run_in_processes(
        heavy.size(),
        [&](size_t i) {
          return to_bytes(space, search_layout(scenario, space, tasks[heavy[i]], machine, make()));
        },
        options);
    for (size_t i = 0; i < heavy.size(); ++i) {
      if (!results[i].ok) throw Error(results[i].error_class, results[i].error);
      parts[heavy[i]] = from_bytes(space, results[i].bytes);
    }
    return parts;
  });
}

}  // namespace moetwin
