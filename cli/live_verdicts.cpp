#include "cli/live_verdicts.h"

#include <algorithm>
#include <numeric>

namespace moetwin {

std::string verdict_line(const Verdict& verdict) {
  const std::string place = verdict_place(verdict);
  return verdict.kind + ": " + (place.empty() ? "" : place + "; ") + verdict.evidence;
}

LiveVerdicts::LiveVerdicts(const StabilityOptions& options, std::vector<std::string> stop_on)
    : monitor_(options), stop_on_(std::move(stop_on)) {}

bool LiveVerdicts::wanted(const std::string& kind) const {
  return std::find(stop_on_.begin(), stop_on_.end(), kind) != stop_on_.end();
}

std::vector<std::string> LiveVerdicts::add(const StepRow& row) {
  std::vector<LayerObservation> layers;
  for (const LayerRow& layer : row.layers) {
    LayerObservation seen;
    seen.layer = layer.layer;
    seen.counts = &layer.counts;
    seen.kept = std::accumulate(layer.kept.begin(), layer.kept.end(), int64_t{0});
    if (layer.probe) {
      seen.probe_shares = &layer.probe->share;
      seen.churn = layer.probe->churn;
    }
    layers.push_back(seen);
  }
  std::vector<std::string> lines;
  for (const Finding& finding : monitor_.add(row.step, row.loss, layers)) {
    lines.push_back(verdict_line(to_verdict(finding)));
    if (!wanted(finding.kind) || found_ != std::numeric_limits<int64_t>::max()) continue;
    verdict_ = to_verdict(finding);
    found_ = row.step;
  }
  return lines;
}

const Verdict* LiveVerdicts::ended_by(const Report& report) {
  if (found_ != std::numeric_limits<int64_t>::max()) return &verdict_;
  for (const Verdict& verdict : report.verdicts)
    if (wanted(verdict.kind)) return &verdict;
  return nullptr;
}

}  // namespace moetwin
