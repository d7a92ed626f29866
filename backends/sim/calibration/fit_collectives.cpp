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

// Rates are fitted as efficiency: the peak of the link is the base's, unless it is exceeded.
void set_link(LinkProfile& link, const char* name, double effective, double latency,
              const std::string& from, FitResult& result) {
  if (effective > link.bandwidth.value) {
    link.bandwidth = BytesPerSecond(effective);
    result.figures.push_back({std::string(name) + ".bytes_per_second", effective,
                              from + ": faster than the base's peak"});
  }
  link.efficiency = effective / link.bandwidth.value;
  link.latency = Seconds(latency);
  result.figures.push_back({std::string(name) + ".efficiency", link.efficiency, from});
  result.figures.push_back({std::string(name) + ".latency_seconds", latency, from});
}

// With some forty figures many are known in combination only: they are held near the base, where an
// e-fold weighs as much as one measurement that is 10% off.
constexpr double kNcclPull = 0.1;

/// The figures that are fitted, as positive numbers: rates and seconds as they are, shares s as
/// s / (1 - s). A share of 1 is not fitted: it says that nothing is lost.
class Parameters {
 public:
  explicit Parameters(const ClusterProfile& profile) : profile_(profile) {
    start_ = {profile.nvlink.effective().value, profile.nic.effective().value};
    if (!profile_.nccl_section) {
      start_.insert(start_.end(), {profile.nvlink.latency.value, profile.nic.latency.value,
                                   profile.collective_seconds.value});
    } else {
      for (const NcclFigure& f : nccl_figures(*profile_.nccl_section))
        if (!f.is_share || *f.value < 1) {
          figures_.push_back(f);
          start_.push_back(f.is_share ? *f.value / (1 - *f.value) : *f.value);
        }
    }
    constexpr double kLeast = 1e-9;  // a logarithm's
    for (double& value : start_) value = std::max(kLeast, value);
  }
  const std::vector<double>& start() const { return start_; }
  const std::vector<NcclFigure>& figures() const { return figures_; }

  /// The profile with these values, until the next call.
  const ClusterProfile& with(const std::vector<double>& v) {
    for (const auto& [link, value] :
         {std::pair(&profile_.nvlink, v[0]), std::pair(&profile_.nic, v[1])}) {
      link->bandwidth = BytesPerSecond(value);
      link->efficiency = 1;
    }
    if (!profile_.nccl_section) {
      profile_.nvlink.latency = Seconds(v[2]);
      profile_.nic.latency = Seconds(v[3]);
      profile_.collective_seconds = Seconds(v[4]);
    }
    for (size_t i = 0; i < figures_.size(); ++i)
      *figures_[i].value = figures_[i].is_share ? v[i + 2] / (1 + v[i + 2]) : v[i + 2];
    return profile_;
  }

 private:
  ClusterProfile profile_;
  std::vector<NcclFigure> figures_;  ///< of profile_
  std::vector<double> start_;
};

}  // namespace

void fit_collectives(const Measurements& m, const std::string& from, FitResult& result) {
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
  Parameters parameters(profile);
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
  if (inside)
    set_link(profile.nvlink, "nvlink", fitted[0], with.nvlink.latency.value, source, result);
  else
    result.notes.push_back("nvlink: no group had two GPUs of a node, as in the base");
  if (between)
    set_link(profile.nic, "nic", fitted[1], with.nic.latency.value, source, result);
  else
    result.notes.push_back("nic: no group spanned two nodes, as in the base");
  profile.nccl_section = with.nccl_section;
  for (size_t i = 0; i < parameters.figures().size(); ++i)
    if (std::abs(fitted[i + 2] / parameters.start()[i + 2] - 1) > 1e-6) {  // else nothing tells it
      const NcclFigure& f = parameters.figures()[i];
      result.figures.push_back({f.key, *f.value, source});
    }
  if (!with.nccl_section) {
    profile.collective_seconds = with.collective_seconds;
    result.figures.push_back({"collective_seconds", with.collective_seconds.value, source});
  }
  result.collectives = lines_of(list);
  const Machine now(profile, machine.world());
  for (const Prepared& p : list)
    result.residuals.push_back(
        {p.measured->series.empty() ? group_text(*p.measured, p.on) : p.measured->series,
         p.measured->what, p.measured->seconds, modelled(p, now)});
}

}  // namespace moetwin
