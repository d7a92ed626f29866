#include "analysis/stability/monitor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"

namespace moetwin {

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

template <class T>
void drop_front(std::vector<T>& v, size_t count) {
  v.erase(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(std::min(count, v.size())));
}

}  // namespace

std::vector<std::string> stoppable_verdicts() {
  return {"oscillating", "collapsed", "imbalanced", "rotating", "diverging"};
}

void StabilityMonitor::trim(LayerSeries& layer) const {
  // Drops in bulk, so that the front is moved seldom.
  const auto most = static_cast<size_t>(3 * options_.window), kept = most * 2 / 3;
  const auto width = static_cast<size_t>(layer.experts);
  if (layer.steps.size() > most) {
    const size_t count = layer.steps.size() - kept;
    drop_front(layer.steps, count);
    drop_front(layer.load, count * width);
    drop_front(layer.kept, count);
  }
  ProbeSeries& probe = layer.probe;
  if (probe.size() > most) {
    const size_t count = probe.size() - kept;
    drop_front(probe.steps, count);
    drop_front(probe.share, count * width);
    for (auto* values : {&probe.churn, &probe.router_entropy, &probe.logit_std, &probe.harm})
      drop_front(*values, count);
  }
}

bool StabilityMonitor::due(int64_t step) const {
  return step - first_step_ >= options_.skip_steps && step - last_check_ >= options_.check_every;
}

std::vector<Finding> StabilityMonitor::add(int64_t step, double loss,
                                           const std::vector<LayerObservation>& layers) {
  if (first_step_ < 0) first_step_ = step, last_check_ = step;
  loss_.steps.push_back(step);
  loss_.loss.push_back(loss);
  loss_.grad_norm.push_back(kUnknown);
  for (const LayerObservation& seen : layers) {
    auto at = std::find_if(routing_.layers.begin(), routing_.layers.end(),
                           [&](const LayerSeries& l) { return l.layer == seen.layer; });
    if (at == routing_.layers.end()) {
      at = routing_.layers.emplace(routing_.layers.end());
      at->layer = seen.layer;
      at->experts = static_cast<int64_t>(seen.counts         ? seen.counts->size()
                                         : seen.probe_shares ? seen.probe_shares->size()
                                                             : 0);
    }
    const auto width = static_cast<size_t>(at->experts);
    if (seen.counts) {
      require(seen.counts->size() == width, "a layer keeps its number of experts");
      int64_t sum = 0;
      for (int64_t n : *seen.counts) {
        at->load.push_back(static_cast<double>(n));
        sum += n;
      }
      at->steps.push_back(step);
      at->kept.push_back(static_cast<double>(seen.kept < 0 ? sum : seen.kept));
    }
    if (seen.probe_shares) {
      require(seen.probe_shares->size() == width, "a layer keeps its number of experts");
      ProbeSeries& probe = at->probe;
      probe.steps.push_back(step);
      probe.share.insert(probe.share.end(), seen.probe_shares->begin(), seen.probe_shares->end());
      probe.churn.push_back(seen.churn);
      for (auto* unknown : {&probe.router_entropy, &probe.logit_std, &probe.harm})
        unknown->push_back(kUnknown);
    }
    trim(*at);
  }
  // A loss that is not finite is judged at once: the run will not wait for the next check.
  const bool broken = !std::isfinite(loss) && loss_.loss.size() > 1 &&
                      std::isfinite(loss_.loss[loss_.loss.size() - 2]);
  if (!due(step) && !broken) return {};
  last_check_ = step;
  // Of the steps to skip those that are dropped from the series have passed already.
  StabilityOptions options = options_;
  int64_t front = step;
  for (const LayerSeries& layer : routing_.layers) {
    if (!layer.steps.empty()) front = std::min(front, layer.steps.front());
    if (!layer.probe.steps.empty()) front = std::min(front, layer.probe.steps.front());
  }
  options.skip_steps = std::max<int64_t>(0, options_.skip_steps - (front - first_step_));
  std::vector<Finding> begun, now;
  std::map<std::pair<std::string, int64_t>, int64_t> running;
  for (const Finding& f : analyse_stability(routing_, loss_, options).findings) {
    if (f.kind == "stable") continue;
    const std::pair<std::string, int64_t> what(f.kind, f.layer);
    running[what] = running_[what] + 1;
    // In a short window the end of a re-ordering looks like a movement that goes on.
    const bool brief = f.kind == "oscillating" && f.checks < options_.hold;
    if ((running[what] < options_.hold || brief) && !broken) continue;
    now.push_back(f);
    const bool held = std::any_of(holding_.begin(), holding_.end(), [&](const Finding& h) {
      return h.kind == f.kind && h.layer == f.layer;
    });
    if (!held) begun.push_back(f);
    seen_.emplace(f.kind, f);
  }
  running_ = running;
  holding_ = now;
  return begun;
}

const Finding* StabilityMonitor::first(const std::string& kind) const {
  const auto found = seen_.find(kind);
  return found == seen_.end() ? nullptr : &found->second;
}

}  // namespace moetwin
