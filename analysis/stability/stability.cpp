#include "analysis/stability/stability.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/stability/advice.h"
#include "analysis/stability/oscillation.h"
#include "analysis/stability/rotation.h"

namespace moetwin {

namespace {

/// 0.5 on the line (margin 1), 0.9 at three times it.
double confidence_of(double margin) { return margin * margin / (1 + margin * margin); }

std::string list(const std::vector<int64_t>& experts) {
  std::string text;
  for (size_t i = 0; i < experts.size() && i < 8; ++i)
    text += fmt::format("{}{}", i ? ", " : "", experts[i]);
  return experts.size() > 8 ? text + fmt::format(" and {} more", experts.size() - 8) : text;
}

/// What is noted of layers, in order of its first layer.
class LayerNotes {
 public:
  void add(int64_t layer, const std::string& text) {
    for (auto& [said, layers] : notes_)
      if (said == text) return layers.push_back(layer);
    notes_.push_back({text, {layer}});
  }
  /// A line for each text, whatever the number of layers it is true of.
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    for (const auto& [text, layers] : notes_) {
      const bool row = layers.size() > 2 &&
                       layers.back() - layers.front() == static_cast<int64_t>(layers.size()) - 1;
      lines.push_back(fmt::format(
          "layer{} {}: {}", layers.size() > 1 ? "s" : "",
          row ? fmt::format("{} to {}", layers.front(), layers.back()) : list(layers), text));
    }
    return lines;
  }

 private:
  std::vector<std::pair<std::string, std::vector<int64_t>>> notes_;
};

struct Layer {
  const LayerSeries& series;
  const StabilityOptions& options;
  StabilityReport& report;
  LayerNotes& layer_notes;
  LoadMetrics metrics;
  Oscillation oscillation;

  void note(const std::string& text) { layer_notes.add(series.layer, text); }

  Finding finding(const char* kind, double confidence) const {
    Finding f;
    f.kind = kind;
    f.layer = series.layer;
    f.confidence = confidence;
    return f;
  }

  bool rotating() {
    const auto n = static_cast<int64_t>(series.size());
    if (n == 0) return false;
    // A whole turn may take longer than a window.
    const int64_t rows = std::min(n, 2 * options.window);
    const std::vector<double> shares = shares_of(series.load, series.experts);
    const Shares window = Shares{shares.data(), n, series.experts}.window(n - rows, n);
    const Rotation r = find_rotation(window, metrics.assignments);
    if (!r.found) return false;
    Finding f = finding("rotating", confidence_of(1 + static_cast<double>(r.moves) / 4));
    const double gap = static_cast<double>(series.steps.back() - series.steps.front()) /
                       static_cast<double>(std::max<int64_t>(1, n - 1));
    f.period_steps = r.dwell_rows * gap * static_cast<double>(r.order.size());
    f.amplitude = r.excess;
    f.experts = r.order;
    f.evidence = fmt::format(
        "the hot set moved on {} times, every {:.3g} steps, through experts {}, never back; it "
        "carries {:.2f} times the mean load",
        r.moves, r.dwell_rows * gap, list(r.order), 1 + r.excess);
    f.knobs = rotation_knobs();
    report.findings.push_back(f);
    return true;
  }

  void oscillating() {
    const Oscillation& o = oscillation;
    const double sure = confidence_of(o.margin);
    Finding f = finding("oscillating", o.from_probe ? sure : 0.7 * sure);
    f.onset_step = o.onset_step;
    f.end_step = o.end_step;
    if (o.periodic) f.period_steps = o.period_steps;
    f.amplitude = o.amplitude;
    f.checks = o.checks;
    f.strength = o.strong ? "strong" : "weak";
    f.experts = o.swap.up;
    f.against = o.swap.down;
    f.evidence = o.from_probe
                     ? fmt::format(
                           "on the probe batch {:.1f}% of tokens change their expert from "
                           "probe to probe (line {:.1f}%) and loads swing by {:.2f} of the "
                           "mean (line {:.2f})",
                           100 * o.churn, 100 * options.churn, o.amplitude, options.amplitude)
                     : fmt::format(
                           "training loads swing by {:.2f} of the mean beyond sampling (no "
                           "probe batch: moving data looks the same)",
                           o.amplitude);
    f.evidence += o.periodic ? fmt::format(", period {:.3g} steps (autocorrelation {:.2f})",
                                           o.period_steps, o.periodicity.strength)
                             : ", without a clear period";
    if (!o.swap.up.empty() && !o.swap.down.empty())
      f.evidence += fmt::format("; experts {} against {}", list(o.swap.up), list(o.swap.down));
    if (o.ended) f.evidence += fmt::format("; it settled after step {}", o.end_step);
    f.knobs = oscillation_knobs(metrics, o);
    report.findings.push_back(f);
  }

  /// Returns whether the loads are uneven in a way that is a verdict.
  void uneven(bool moving) {
    const LoadMetrics& m = metrics;
    if (m.assignments <= 0) return;
    const double cv = moving ? m.mean_load.load_cv : m.block_cv;
    const double highest = moving ? m.mean_load.imbalance_experts : m.block_max;
    const double starved = m.starved_share / options.collapsed_dead;
    const double narrow = m.mean_load.entropy < options.collapsed_entropy
                              ? 1 + (options.collapsed_entropy - m.mean_load.entropy) * 3
                              : 0;
    if (std::max(starved, narrow) > 1) {
      Finding f = finding("collapsed", confidence_of(std::max(starved, narrow)));
      f.experts = m.hot;
      f.evidence = fmt::format(
          "{:.0f}% of experts get less than a tenth of the mean load, entropy of the loads {:.2f} "
          "of 1, the highest load {:.1f} times the mean (experts {})",
          100 * m.starved_share, m.mean_load.entropy, m.mean_load.imbalance_experts, list(m.hot));
      if (m.dropped_share > 0.005)
        f.evidence += fmt::format("; {:.0f}% of assignments dropped", 100 * m.dropped_share);
      f.knobs = collapse_knobs();
      report.findings.push_back(f);
      return;
    }
    std::vector<std::string> reasons;
    double margin =
        std::max(cv / options.imbalanced_cv, (highest - 1) / (options.imbalanced_max - 1));
    if (margin > 1)
      reasons.push_back(
          fmt::format("load CV {:.2f} (line {:.2f}), highest load {:.2f} times the "
                      "mean (line {:.2f}), hot experts {}",
                      cv, options.imbalanced_cv, highest, options.imbalanced_max,
                      m.hot.empty() ? "none for long" : list(m.hot)));
    if (!m.dead.empty()) {
      reasons.push_back(fmt::format("experts {} get less than 1% of the mean load", list(m.dead)));
      margin = std::max(margin, 2.0);
    }
    if (!moving && margin <= 1 && m.burst_time > 0.02 && m.usual_max < options.burst_usual) {
      reasons.push_back(
          fmt::format("in bursts: {:.0f}% of the time the highest load is above {:.1f} times the "
                      "mean, usually {:.2f}{}",
                      100 * m.burst_time, options.burst_max, m.usual_max,
                      oscillation.bursts && oscillation.periodicity.period_rows > 0
                          ? fmt::format("; every {:.3g} steps", oscillation.periodicity.period_rows)
                          : ""));
      margin = std::max(margin, 1.5);
    }
    if (m.source_ratio > 1.5) {
      reasons.push_back(
          fmt::format("source ranks route unequal numbers of tokens, {:.1f} to 1", m.source_ratio));
      margin = std::max(margin, m.source_ratio / 1.5);
    }
    if (reasons.empty()) return;
    Finding f = finding("imbalanced", confidence_of(margin));
    f.experts = m.hot.empty() ? m.dead : m.hot;
    f.evidence = fmt::format("{}", fmt::join(reasons, "; "));
    if (m.per_step.imbalance_ranks > 1.2 && options.expert_columns > 1)
      f.evidence +=
          fmt::format("; the fullest rank gets {:.2f} times the mean", m.per_step.imbalance_ranks);
    if (m.dropped_share > 0.005)
      f.evidence += fmt::format("; {:.1f}% of assignments dropped", 100 * m.dropped_share);
    f.knobs = imbalance_knobs(m);
    report.findings.push_back(f);
  }

  void notes() {
    const LoadMetrics& m = metrics;
    if (m.router_entropy < options.saturated_entropy)
      note(
          fmt::format("the router is saturated: entropy of its scores {:.3f} of 1; it hardly "
                      "learns any more",
                      m.router_entropy));
    if (m.harm > options.harmful)
      note(
          fmt::format("early warning: {:.0f}% of routed tokens would be better off without their "
                      "expert (calm runs: 25 to 55%)",
                      100 * m.harm));
    if (m.logit_std > 10 * m.logit_std_first && m.logit_std > 5)
      note(
          fmt::format("router logits grew from {:.2g} to {:.2g} (deviation over experts); a z-loss "
                      "of 0.001 keeps them small",
                      m.logit_std_first, m.logit_std));
    if (!oscillation.found && oscillation.moved_until >= 0)
      note(fmt::format("the router re-ordered until step {} and settled", oscillation.moved_until));
    if (!oscillation.enough && series.size() > 0)
      note(fmt::format("{} steps are too few to judge movement (at least {})", series.size(),
                       options.fewest_rows));
  }

  void run() {
    metrics = load_metrics(series, options);
    oscillation = find_oscillation(series, options);
    const bool rotates = rotating();
    if (!rotates && oscillation.found) oscillating();
    uneven(rotates || (oscillation.found && !oscillation.ended));
    notes();
    report.layers.push_back(metrics);
  }
};

int severity(const std::string& kind) {
  const char* order[] = {"diverging", "oscillating", "collapsed", "rotating", "imbalanced"};
  for (int i = 0; i < 5; ++i)
    if (kind == order[i]) return i;
  return 5;
}

}  // namespace

bool StabilityReport::has(const std::string& kind) const {
  return std::any_of(findings.begin(), findings.end(),
                     [&](const Finding& f) { return f.kind == kind; });
}

StabilityReport analyse_stability(const RoutingSeries& routing, const LossSeries& loss,
                                  const StabilityOptions& options) {
  StabilityReport report;
  report.loss = loss_metrics(loss);
  bool judged = report.loss.known && loss.steps.size() >= 40;
  double calmness = 0;  // the largest margin of what did not become a verdict
  LayerNotes notes;
  for (const LayerSeries& series : routing.layers) {
    Layer layer{series, options, report, notes, {}, {}};
    layer.run();
    judged = judged || layer.oscillation.enough;
    calmness = std::max(
        {calmness, layer.oscillation.margin, layer.metrics.block_cv / options.imbalanced_cv});
  }
  report.notes = notes.lines();
  if (report.loss.diverging) {
    Finding f;
    f.kind = "diverging";
    f.onset_step = report.loss.onset_step;
    f.confidence = report.loss.non_finite_step >= 0 ? 1 : confidence_of(report.loss.ratio);
    f.evidence = report.loss.evidence;
    f.knobs = divergence_knobs();
    report.findings.push_back(f);
  }
  if (!report.loss.spikes.empty())
    report.notes.push_back(fmt::format("{} loss spikes, the last at step {}",
                                       report.loss.spikes.size(), report.loss.spikes.back()));
  std::stable_sort(
      report.findings.begin(), report.findings.end(), [](const Finding& a, const Finding& b) {
        return severity(a.kind) != severity(b.kind) ? severity(a.kind) < severity(b.kind)
                                                    : a.confidence > b.confidence;
      });
  if (report.findings.empty() && judged) {
    Finding f;
    f.kind = "stable";
    f.confidence = 1 - confidence_of(std::min(1.0, calmness));
    f.evidence = routing.layers.empty()
                     ? "the loss neither diverges nor rises (no MoE layer)"
                     : fmt::format(
                           "no layer moves, starves experts or is uneven beyond its line; "
                           "the nearest is at {:.0f}% of it",
                           100 * std::min(1.0, calmness));
    report.findings.push_back(f);
  }
  return report;
}

}  // namespace moetwin
