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
  size_t sharding, schedule, recompute, capacity;
  int64_t virtual_stages, micro_batch;
  bool cpu_offload, overlap;
  PlanFigures figures;
};
static_assert(std::is_trivially_copyable_v<Packed>);

struct Counts {
  int64_t combinations, refused, state_too_large, too_large, slower_by_rule, estimated;
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
             space.capacity_factor[packed.capacity]};
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
                 s.estimated, s.fitting.size(), s.refused_by.size(), s.closest.has_value()});
  for (const PlanResult& r : s.fitting) out.put(pack(space, r));
  if (s.closest) out.put(pack(space, *s.closest));
  for (const auto& [rule, count] : s.refused_by) {
    out.put(rule.size());
    out.bytes += rule;
    out.put(count);
  }
  return out.bytes;
}

void add(PlanSearch& to, const PlanSpace& space, const std::string& bytes) {
  Reader in(bytes);
  const auto counts = in.get<Counts>();
  to.combinations += counts.combinations;
  to.refused += counts.refused;
  to.state_too_large += counts.state_too_large;
  to.too_large += counts.too_large;
  to.slower_by_rule += counts.slower_by_rule;
  to.estimated += counts.estimated;
  for (size_t i = 0; i < counts.fitting; ++i) to.fitting.push_back(unpack(space, in.get<Packed>()));
  if (counts.closest) {
    const PlanResult closest = unpack(space, in.get<Packed>());
    if (!to.closest || closest.figures.peak_bytes < to.closest->figures.peak_bytes)
      to.closest = closest;
  }
  for (size_t i = 0; i < counts.rules; ++i) {
    const std::string rule = in.text();
    to.refused_by[rule] += in.get<int64_t>();
  }
}

}  // namespace

PlanSearch search_plan_in_processes(const Scenario& scenario, const PlanSpace& space,
                                    const PlanMachine& machine, const MakeEstimate& make,
                                    int processes) {
  const std::vector<PlanLayout> layouts = plan_layouts(space, scenario);
  check_layouts(layouts, scenario);
  if (processes <= 0)
    processes = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  // A layout a job: what they cost differs, and an estimator keeps little from one to the next.
  ProcessOptions options;
  options.processes = processes;
  const auto results = run_in_processes(
      layouts.size(),
      [&](size_t i) {
        return to_bytes(space, search_layouts(scenario, space, {layouts[i]}, machine, make()));
      },
      options);
  PlanSearch found;
  for (const JobResult& result : results) {
    if (!result.ok) throw Error(result.error_class, result.error);
    add(found, space, result.bytes);
  }
  rank_plan(found);
  return found;
}

}  // namespace moetwin
