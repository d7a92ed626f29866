// Bandwidths and latencies of links from collectives.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "backends/sim/calibration/fit_parts.h"
#include "backends/sim/calibration/least_squares.h"
#include "backends/sim/cluster/machine.h"
#include "backends/sim/collective/plan.h"
#include "core/base/error.h"

namespace moetwin {
namespace {

/// Everything about a collective that does not change while figures are tried.
struct Prepared {
  const CollectiveMeasurement* measured;
  NodesOfGroup on;
  NcclChoice choice;
  std::vector<Candidate> candidates;
};

double modelled(const Prepared& p, const Machine& machine) {
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : p.candidates)
    if (const auto chosen = fastest(candidate, machine, p.choice))
      least = std::min(least, chosen->seconds.value);
  return least;
}

int64_t world_of(const Measurements& m) {
  int64_t world = 1;
  for (const CollectiveMeasurement& c : m.collectives)
    world = std::max(world, c.group.member(c.group.size() - 1) + 1);
  return world;
}

std::vector<Prepared> prepare(const Measurements& m, const Machine& machine) {
  std::vector<Prepared> list;
  for (const CollectiveMeasurement& c : m.collectives) {
    Prepared p{&c, NodesOfGroup(c.group, machine), nccl_choice("auto", c.nccl), {}};
    CollectiveShape shape;
    shape.kind = c.kind;
    shape.group = c.group;
    shape.on = &p.on;
    shape.bytes = c.bytes;
    shape.from = 0, shape.to = c.group.size() - 1;
    shape.pair_bytes = c.pair_bytes;
    p.candidates = candidates(shape, machine, p.choice);
    list.push_back(std::move(p));
  }
  return list;
}

std::string group_text(const CollectiveMeasurement& c, const NodesOfGroup& on) {
  return fmt::format("{} of {} on {} node{}", collective_name(c.kind), c.group.size(), on.nodes,
                     on.nodes == 1 ? "" : "s");
}

bool is_uniform(const CollectiveMeasurement& c) {
  return std::adjacent_find(c.pair_bytes.begin(), c.pair_bytes.end(), std::not_equal_to<>()) ==
         c.pair_bytes.end();
}

/// One line per collective and group, as nccl-tests' readers think of it.
std::vector<AlphaBeta> lines_of(const std::vector<Prepared>& list) {
  struct Points {
    std::vector<double> bytes, seconds;
    double factor = 1;
  };
  std::vector<std::string> order;
  std::map<std::string, Points> points;
  for (const Prepared& p : list) {
    if (!is_uniform(*p.measured)) continue;
    const std::string name = group_text(*p.measured, p.on);
    if (!points.count(name)) order.push_back(name);
    Points& to = points[name];
    to.factor = bus_factor(p.measured->kind, p.measured->group.size());
    to.bytes.push_back(p.measured->bytes * to.factor);
    to.seconds.push_back(p.measured->seconds);
  }
  std::vector<AlphaBeta> lines;
  for (const std::string& name : order) {
    const Points& p = points[name];
    const Line line = fit_line(p.bytes, p.seconds);
    AlphaBeta fit{name, static_cast<int64_t>(p.bytes.size()), line.constant,
                  line.slope > 0 ? 1 / line.slope : 0, 0};
    for (size_t i = 0; i < p.bytes.size(); ++i)
      fit.worst_error = std::max(
          fit.worst_error, std::abs((line.constant + line.slope * p.bytes[i]) / p.seconds[i] - 1));
    lines.push_back(fit);
  }
  return lines;
}

// With some forty figures many are known in combination only: they are held near the base, where an
// e-fold weighs as much as one measurement that is 10% off.
constexpr double kNcclPull = 0.1;

/// The figures that are fitted, as positive numbers: rates and seconds as they are, shares s as
/// s / (1 - s). A share of 1 is not fitted: it says that nothing is lost.
class Parameters {
 public:
  Parameters(const ClusterProfile& profile, const std::vector<std::string>& only)
      : profile_(profile) {
    for (LinkProfile* link : {&profile_.nvlink, &profile_.nic}) {
      link->bandwidth = link->effective();
      link->efficiency = 1;
    }
    std::vector<NcclFigure> all = {{"nvlink.efficiency", &profile_.nvlink.bandwidth.value, false},
                                   {"nic.efficiency", &profile_.nic.bandwidth.value, false}};
    if (profile_.nccl_section) {
      for (const NcclFigure& f : nccl_figures(*profile_.nccl_section)) all.push_back(f);
    } else {
      all.push_back({"nvlink.latency_seconds", &profile_.nvlink.latency.value, false});
      all.push_back({"nic.latency_seconds", &profile_.nic.latency.value, false});
      all.push_back({"collective_seconds", &profile_.collective_seconds.value, false});
    }
    constexpr double kLeast = 1e-9;  // a logarithm's
    for (const NcclFigure& f : all) {
      const auto named = [&](const std::string& text) {
        return f.key.find(text) != std::string::npos;
      };
      if (f.is_share && *f.value >= 1) continue;
      if (!only.empty() && std::none_of(only.begin(), only.end(), named)) continue;
      figures_.push_back(f);
      start_.push_back(std::max(kLeast, f.is_share ? *f.value / (1 - *f.value) : *f.value));
    }
  }
  Parameters(const Parameters&) = delete;
  const std::vector<double>& start() const { return start_; }
  const std::vector<NcclFigure>& figures() const { return figures_; }

  /// The profile with these values, until the next call.
  const ClusterProfile& with(const std::vector<double>& v) {
    for (size_t i = 0; i < figures_.size(); ++i)
      *figures_[i].value = figures_[i].is_share ? v[i] / (1 + v[i]) : v[i];
    return profile_;
  }

 private:
  ClusterProfile profile_;
  std::vector<NcclFigure> figures_;  ///< of profile_
  std::vector<double> start_;
};

/// A link's rate is fitted as efficiency: its peak is the base's, unless it is exceeded.
void take_rate(LinkProfile& link, const std::string& key, double effective,
               const std::string& source, FitResult& result) {
  if (effective > link.bandwidth.value) {
    link.bandwidth = BytesPerSecond(effective);
    result.figures.push_back({key.substr(0, key.find('.')) + ".bytes_per_second", effective,
                              source + ": faster than the base's peak"});
  }
  link.efficiency = effective / link.bandwidth.value;
  result.figures.push_back({key, link.efficiency, source});
}

}  // namespace

void fit_collectives(const Measurements& m, const std::string& from,
                     const std::vector<std::string>& only, FitResult& result) {
  if (m.collectives.empty()) {
    result.notes.push_back(
        "nvlink, nic, collective_seconds: no collectives were measured, as in "
        "the base");
    return;
  }
  ClusterProfile& profile = result.profile;
  const Machine machine(profile, world_of(m));
  for (const CollectiveMeasurement& c : m.collectives)
    if (c.group.size() < 2)
      throw Error(ErrorClass::configuration,
                  fmt::format("\"{}\": a collective of fewer than 2 GPUs says nothing", c.what));
  const std::vector<Prepared> list = prepare(m, machine);
  const bool inside =
      std::any_of(list.begin(), list.end(), [](const Prepared& p) { return p.on.most > 1; });
  const bool between =
      std::any_of(list.begin(), list.end(), [](const Prepared& p) { return p.on.nodes > 1; });
  Parameters parameters(profile, only);
  const Residuals residuals = [&](const std::vector<double>& values) {
    const Machine tried(parameters.with(values), machine.world());
    std::vector<double> r;
    for (const Prepared& p : list) r.push_back(std::log(modelled(p, tried) / p.measured->seconds));
    return r;
  };
  const std::vector<double> fitted = fit_positive(residuals, parameters.start(), kOutlier,
                                                  profile.nccl_section ? kNcclPull : 1e-3);
  const ClusterProfile& with = parameters.with(fitted);
  const std::string source = fmt::format("{}: fit to {} collectives", from, list.size());
  if (!inside) result.notes.push_back("nvlink: no group had two GPUs of a node, as in the base");
  if (!between) result.notes.push_back("nic: no group spanned two nodes, as in the base");
  profile.nccl_section = with.nccl_section;
  profile.collective_seconds = with.collective_seconds;
  if (inside) profile.nvlink.latency = with.nvlink.latency;
  if (between) profile.nic.latency = with.nic.latency;
  for (size_t i = 0; i < fitted.size(); ++i) {
    const NcclFigure& f = parameters.figures()[i];
    const bool nvlink = f.key.rfind("nvlink.", 0) == 0, nic = f.key.rfind("nic.", 0) == 0;
    if ((nvlink && !inside) || (nic && !between)) continue;
    if (f.key == "nvlink.efficiency")
      take_rate(profile.nvlink, f.key, *f.value, source, result);
    else if (f.key == "nic.efficiency")
      take_rate(profile.nic, f.key, *f.value, source, result);
    else if (!profile.nccl_section || std::abs(fitted[i] / parameters.start()[i] - 1) > 1e-6)
      result.figures.push_back({f.key, *f.value, source});  // else nothing tells it
  }
  result.collectives = lines_of(list);
  const Machine now(profile, machine.world());
  for (const Prepared& p : list)
    result.residuals.push_back(
        {p.measured->series.empty() ? group_text(*p.measured, p.on) : p.measured->series,
         p.measured->what, p.measured->seconds, modelled(p, now)});
}

}  // namespace moetwin
