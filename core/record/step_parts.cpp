#include "core/record/step_parts.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace moetwin {

namespace {

constexpr int kActivities = 6, kPhases = 6;

struct Edge {
  double time;
  int change;  ///< +1 where an interval begins, -1 where it ends
  int activity, phase;
};

/// Where device work begins, and whether it is an exchange between pipeline stages.
struct Begin {
  double time;
  bool between_stages;
};

bool between_stages(const Interval& interval, bool pipeline) {
  if (interval.activity != Activity::other_communication) return false;
  if (std::strncmp(interval.group, "pp", 2) == 0) return true;
  return pipeline && (std::strcmp(interval.group, "world") == 0 ||
                      std::strcmp(interval.group, "embedding") == 0);
}

/// What is running at an instant.
struct Running {
  int by_activity[kActivities] = {};
  int compute_by_phase[kPhases] = {};
  bool has(Activity activity) const { return by_activity[static_cast<int>(activity)] > 0; }
  bool has_compute(Phase phase) const { return compute_by_phase[static_cast<int>(phase)] > 0; }
  void apply(const Edge& edge) {
    by_activity[edge.activity] += edge.change;
    if (edge.activity == static_cast<int>(Activity::compute))
      compute_by_phase[edge.phase] += edge.change;
  }
};

void add_compute(StepParts& parts, const Running& now, double seconds) {
  parts[Part::compute] += seconds;
  double& share = now.has_compute(Phase::forward)     ? parts.forward
                  : now.has_compute(Phase::backward)  ? parts.backward
                  : now.has_compute(Phase::recompute) ? parts.recompute
                  : now.has_compute(Phase::optimizer) ? parts.optimizer
                                                      : parts.compute_other;
  share += seconds;
}

}  // namespace

const char* part_name(Part part) {
  constexpr const char* kNames[] = {
      "compute", "all_to_all", "other_communication", "offload", "bubble", "host", "data", "idle"};
  return kNames[static_cast<int>(part)];
}

double StepParts::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

StepParts& StepParts::operator+=(const StepParts& o) {
  for (size_t i = 0; i < seconds.size(); ++i) seconds[i] += o.seconds[i];
  forward += o.forward, backward += o.backward, recompute += o.recompute;
  optimizer += o.optimizer, compute_other += o.compute_other;
  all_to_all_hidden += o.all_to_all_hidden;
  other_communication_hidden += o.other_communication_hidden;
  return *this;
}

StepParts StepParts::operator/(double divisor) const {
  StepParts result = *this;
  for (double& s : result.seconds) s /= divisor;
  for (double* s :
       {&result.forward, &result.backward, &result.recompute, &result.optimizer,
        &result.compute_other, &result.all_to_all_hidden, &result.other_communication_hidden})
    *s /= divisor;
  return result;
}

void StepParts::fit(double step_seconds) {
  double excess = total() - step_seconds;
  if (excess <= 0) {
    (*this)[Part::idle] -= excess;
    return;
  }
  for (int part = kParts - 1; part >= 0 && excess > 0; --part) {
    const double taken = std::min(excess, seconds[static_cast<size_t>(part)]);
    seconds[static_cast<size_t>(part)] -= taken;
    excess -= taken;
  }
}

StepParts step_parts(const Profile& profile, double start, double end, bool pipeline) {
  std::vector<Edge> edges;
  std::vector<Begin> begins;
  edges.reserve(2 * profile.intervals.size());
  for (const Interval& interval : profile.intervals) {
    const double from = std::max(interval.start, start), to = std::min(interval.end, end);
    if (from >= to) continue;
    const int activity = static_cast<int>(interval.activity);
    const int phase = static_cast<int>(interval.phase);
    edges.push_back({from, +1, activity, phase});
    edges.push_back({to, -1, activity, phase});
    if (interval.stream >= 0) begins.push_back({from, between_stages(interval, pipeline)});
  }
  std::sort(edges.begin(), edges.end(),
            [](const Edge& a, const Edge& b) { return a.time < b.time; });
  std::sort(begins.begin(), begins.end(), [](const Begin& a, const Begin& b) {
    return a.time != b.time ? a.time < b.time : a.between_stages > b.between_stages;
  });

  StepParts parts;
  Running now;
  double time = start;
  auto next = begins.begin();
  const auto claim = [&](double until) {
    const double seconds = until - time;
    if (seconds <= 0) return;
    const bool compute = now.has(Activity::compute), exchange = now.has(Activity::all_to_all);
    if (compute && exchange) parts.all_to_all_hidden += seconds;
    if ((compute || exchange) && now.has(Activity::other_communication))
      parts.other_communication_hidden += seconds;
    if (compute) {
      add_compute(parts, now, seconds);
    } else if (exchange) {
      parts[Part::all_to_all] += seconds;
    } else if (now.has(Activity::other_communication)) {
      parts[Part::other_communication] += seconds;
    } else if (now.has(Activity::offload)) {
      parts[Part::offload] += seconds;
    } else {
      while (next != begins.end() && next->time < until) ++next;
      const bool bubble = next != begins.end() && next->between_stages;
      parts[bubble                    ? Part::bubble
            : now.has(Activity::host) ? Part::host
            : now.has(Activity::data) ? Part::data
                                      : Part::idle] += seconds;
    }
    time = until;
  };
  for (const Edge& edge : edges) {
    claim(edge.time);
    now.apply(edge);
  }
  claim(end);
  return parts;
}

}  // namespace moetwin
