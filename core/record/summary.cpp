#include "core/record/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/units.h"
#include "core/record/progress.h"

namespace moetwin {

namespace {

constexpr int kLabel = 18;       // columns of the left margin
constexpr int kLayersShown = 8;  // MoE layers on one screen
constexpr int kGroupsShown = 4;
constexpr size_t kOpsShown = 12;
constexpr size_t kCollectivesShown = 5;
constexpr size_t kVerdictsShown = 3;  // of a kind: layers alike

/// Lines under headings, wrapped at the width.
class Screen {
 public:
  explicit Screen(const ScreenStyle& style) : style_(style) {}
  const ScreenStyle& style() const { return style_; }
  void line(const std::string& text) {
    text_ += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  }
  void heading(const std::string& text) {
    line("");
    line(text);
  }
  /// A label and what is said of it, in as many lines as it takes; pieces are not broken.
  void say(const std::string& label, const std::vector<std::string>& pieces) {
    std::string current = "  " + left(label, kLabel);
    bool fresh = true;
    for (const std::string& piece : pieces) {
      if (!fresh && columns(current) + 3 + columns(piece) > kSummaryColumns) {
        line(current);
        current = "  " + left("", kLabel);
        fresh = true;
      }
      current += (fresh ? "" : "   ") + piece;
      fresh = false;
    }
    line(current);
  }
  /// Running text, broken between words.
  void words(const std::string& label, const std::string& text) {
    const std::string margin = "  " + left("", kLabel);
    std::string current = "  " + left(label, kLabel);
    bool fresh = true;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find(' ', at), text.size());
      const std::string word = text.substr(at, end - at);
      if (!fresh && columns(current) + 1 + columns(word) > kSummaryColumns) {
        line(current);
        current = margin;
        fresh = true;
      }
      current += (fresh ? "" : " ") + word;
      fresh = false;
      at = end + 1;
    }
    line(current);
  }
  std::string text() const { return text_; }

 private:
  ScreenStyle style_;
  std::string text_;
};

std::string percent(double share, int decimals = 1) {
  return fmt::format("{:.{}f} %", 100 * share, decimals);
}

/// 12,345,678
std::string grouped(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (int at = static_cast<int>(digits.size()) - 3; at > (digits[0] == '-' ? 1 : 0); at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string sizes_text(const Report& r) {
  std::string text = fmt::format("{} GPU{}", r.world_size, r.world_size == 1 ? "" : "s");
  if (r.num_experts > 0)
    text += fmt::format(": DP {} x EP {}", r.expert_data_parallel, r.expert_parallel);
  else
    text += fmt::format(": DP {}", r.dense_data_parallel);
  // Of ranks with experts it is no factor: EP takes them from DP x CP.
  if (r.context_parallel > 1 && r.num_experts == 0)
    text += fmt::format(" x CP {}", r.context_parallel);
  if (r.tensor_parallel > 1) text += fmt::format(" x TP {}", r.tensor_parallel);
  if (r.pipeline_parallel > 1) text += fmt::format(" x PP {}", r.pipeline_parallel);
  if (r.context_parallel > 1 && r.num_experts > 0)
    text += fmt::format(" (CP {})", r.context_parallel);
  return text;
}

void faults(Screen& screen, const Report& r) {
  if (!r.fault_costs) return;
  const FaultCosts& costs = *r.fault_costs;
  const auto steps = static_cast<double>(std::max<int64_t>(r.steps_recorded, 1));
  const auto line = [&](const std::string& label, double seconds, const std::string& of) {
    const double without = r.device_seconds - seconds;
    if (without <= 0) return;
    screen.say(
        label,
        {format_seconds(seconds / steps) + " a step", percent(seconds / without),
         grouped(costs.tokens / without - costs.tokens / r.device_seconds) + " tokens/s", of});
  };
  screen.heading("What faults cost, mean of all steps; each where the others stay");
  line("all", r.device_seconds - costs.device_seconds_without,
       "step " + format_seconds(r.device_seconds / steps) + " instead of " +
           format_seconds(costs.device_seconds_without / steps));
  for (const FaultCosts::Each& each : costs.each) line("this one", each.seconds, each.fault);
}

void training(Screen& screen, const Report& r) {
  std::vector<std::string> pieces;
  if (std::isfinite(r.last_loss)) {
    pieces.push_back(fmt::format("loss {:.4f} -> {:.4f} nats a token", r.first_loss, r.last_loss));
    if (std::isfinite(r.validation_last))
      pieces.push_back(fmt::format("validation {:.4f}", r.validation_last));
  } else {
    pieces.push_back("numerics off: no loss");
  }
  pieces.push_back(r.steps_done == r.steps_asked
                       ? fmt::format("{} steps", r.steps_done)
                       : fmt::format("{} of {} steps", r.steps_done, r.steps_asked));
  screen.say("Training", pieces);
}

void throughput(Screen& screen, const Report& r) {
  if (r.steps_measured == 0) {
    screen.say("Throughput", {"no step was completed"});
    return;
  }
  const bool tiny = r.mfu < 0.001;
  screen.say("Throughput", {grouped(r.tokens_per_second) + " tokens/s",
                            fmt::format("{:.1f} samples/s", r.samples_per_second),
                            "step " + format_seconds(r.step_seconds_median) + " (median)"});
  if (std::isfinite(r.mfu)) {
    std::vector<std::string> pieces = {"MFU " + percent(r.mfu, tiny ? 4 : 1)};
    if (r.hfu != r.mfu) pieces.push_back("HFU " + percent(r.hfu, tiny ? 4 : 1));
    pieces.push_back(
        fmt::format("of {:g} TFLOP/s {} dense a GPU", r.peak_flop_per_second / 1e12, r.dtype));
    screen.say("", pieces);
    if (!r.peak_source.empty()) screen.words("", "peak from " + r.peak_source);
  }
  const int64_t warm = r.steps_recorded - r.steps_measured;
  screen.say(
      "", {fmt::format("mean of {} step{}{}", r.steps_measured, r.steps_measured == 1 ? "" : "s",
                       warm > 0
                           ? fmt::format(", {} warm-up step{} left out", warm, warm == 1 ? "" : "s")
                           : std::string())});
}

void part_line(Screen& screen, const std::string& name, double seconds, double whole,
               const std::string& remark = "") {
  screen.line("  " + left(name, 23) + right(format_seconds(seconds), 10) +
              right(percent(seconds / whole), 9) + "  " +
              left(bar(seconds / whole, 32, screen.style()), 32) +
              (remark.empty() ? "" : "  " + remark));
}

void step_parts_lines(Screen& screen, const Report& r) {
  if (r.steps_measured == 0) return;
  const StepParts& p = r.parts;
  const double whole = r.step_seconds_median;
  screen.heading(fmt::format("Where a step of {} goes (step {}, mean of {})", format_seconds(whole),
                             r.median_step,
                             r.world_size == 1 ? "1 rank" : fmt::format("{} ranks", r.world_size)));
  part_line(screen, "compute", p[Part::compute], whole);
  const std::pair<const char*, double> shares[] = {{"forward", p.forward},
                                                   {"backward", p.backward},
                                                   {"recompute", p.recompute},
                                                   {"optimizer", p.optimizer},
                                                   {"other", p.compute_other}};
  for (const auto& [name, seconds] : shares)
    if (seconds > 0) part_line(screen, std::string("  ") + name, seconds, whole);
  const auto hidden = [](double seconds) {
    return seconds > 0 ? "+ " + format_seconds(seconds) + " hidden" : std::string();
  };
  part_line(screen, "all-to-all", p[Part::all_to_all], whole, hidden(p.all_to_all_hidden));
  part_line(screen, "other communication", p[Part::other_communication], whole,
            hidden(p.other_communication_hidden));
  const std::pair<const char*, Part> rest[] = {{"offload", Part::offload},
                                               {"pipeline bubble", Part::bubble},
                                               {"host", Part::host},
                                               {"data", Part::data},
                                               {"idle", Part::idle}};
  for (const auto& [name, part] : rest)
    if (p[part] > 0) part_line(screen, name, p[part], whole);
}

void traffic(Screen& screen, const Report& r) {
  std::vector<std::string> pieces;
  const auto tell = [&](std::string name, const Report::Sent& sent) {
    if (sent.bytes == 0) return;
    std::replace(name.begin(), name.end(), '_', '-');
    pieces.push_back(name + " " + format_bytes(sent.bytes) +
                     (sent.off_node > 0
                          ? fmt::format(" ({} off node)", percent(sent.off_node / sent.bytes, 0))
                          : ""));
  };
  // The token exchange first: it is what expert parallelism costs.
  const auto exchange = r.traffic_per_step.find("all_to_all");
  if (exchange != r.traffic_per_step.end()) tell("all_to_all", exchange->second);
  for (const auto& [kind, sent] : r.traffic_per_step)
    if (kind != "all_to_all") tell(kind, sent);
  if (pieces.empty()) pieces.push_back("nothing leaves a GPU");
  pieces.push_back(fmt::format("{:.3g} host sync{}", r.host_syncs_per_step,
                               r.host_syncs_per_step == 1 ? "" : "s"));
  screen.line("");
  screen.say("Traffic a step", pieces);
}

std::string ranks_text(const Group& group) {
  const std::vector<int64_t> members = group.members();
  if (members.size() == 1) return fmt::format("rank {}", members[0]);
  const int64_t stride = members[1] - members[0];
  bool even = true;
  for (size_t i = 1; i < members.size(); ++i) even = even && members[i] - members[i - 1] == stride;
  if (members.size() == 2 && stride != 1)
    return fmt::format("ranks {}, {}", members[0], members[1]);
  if (even && stride == 1) return fmt::format("ranks {}-{}", members.front(), members.back());
  if (even) return fmt::format("ranks {}, {}, .. {}", members[0], members[1], members.back());
  return fmt::format("{} ranks from {}", members.size(), members[0]);
}

void memory(Screen& screen, const Report& r) {
  const auto capacity = static_cast<double>(r.memory_capacity_bytes);
  screen.heading("Memory, peak a GPU" +
                 (capacity > 0 ? " of " + format_bytes(capacity) : std::string()));
  const auto row = [&](const std::string& name, const EpGroupMemory& m) {
    const auto low = static_cast<double>(m.lowest), high = static_cast<double>(m.highest);
    std::string text = "  " + left(name, 33) + right(format_bytes(high), 12);
    if (capacity > 0)
      text += right(percent(high / capacity), 10) + "  " +
              left(bar(high / capacity, 24, screen.style()), 24);
    if (high > capacity && capacity > 0)
      text += "  too much";
    else if (low < high)
      text += "  from " + format_bytes(low);
    screen.line(text);
  };
  for (size_t g = 0; g < r.ep_groups.size() && g < kGroupsShown; ++g)
    row(fmt::format("EP group {} ({})", g, ranks_text(r.ep_groups[g].group)), r.ep_groups[g]);
  if (r.ep_groups.size() > kGroupsShown) {
    EpGroupMemory others = r.ep_groups[kGroupsShown];
    for (size_t g = kGroupsShown; g < r.ep_groups.size(); ++g) {
      others.lowest = std::min(others.lowest, r.ep_groups[g].lowest);
      others.highest = std::max(others.highest, r.ep_groups[g].highest);
    }
    row(fmt::format("{} more EP group{}", r.ep_groups.size() - kGroupsShown,
                    r.ep_groups.size() == kGroupsShown + 1 ? "" : "s"),
        others);
  }
  std::vector<std::string> pieces;
  for (int c = 0; c < kMemoryClasses; ++c) {
    const auto bytes = static_cast<double>(r.classes_of_fullest[static_cast<size_t>(c)]);
    if (bytes > 0)
      pieces.push_back(std::string(memory_class_name(static_cast<MemoryClass>(c))) + " " +
                       format_bytes(bytes));
  }
  if (!pieces.empty()) screen.say(fmt::format("Rank {}", r.fullest_rank), pieces);
}

/// Layers to show: all, or those with the widest spread of load.
std::vector<const LayerReport*> shown_layers(const Report& r) {
  std::vector<const LayerReport*> layers;
  for (const LayerReport& layer : r.layers) layers.push_back(&layer);
  if (layers.size() <= kLayersShown) return layers;
  std::stable_sort(layers.begin(), layers.end(), [](const LayerReport* a, const LayerReport* b) {
    return a->metrics.load_cv > b->metrics.load_cv;
  });
  layers.resize(kLayersShown);
  std::sort(layers.begin(), layers.end(),
            [](const LayerReport* a, const LayerReport* b) { return a->layer < b->layer; });
  return layers;
}

void routing(Screen& screen, const Report& r) {
  if (r.layers.empty()) return;
  const auto experts = static_cast<double>(r.num_experts);
  const bool scores = !r.layers.front().mean_probability.empty();
  const std::vector<const LayerReport*> layers = shown_layers(r);
  screen.heading(fmt::format(
      "MoE layers{}, mean of the last {}; half height is a fair share (1/{})",
      layers.size() < r.layers.size()
          ? fmt::format(" ({} of {}, the most uneven)", layers.size(), r.layers.size())
          : std::string(),
      r.routing_window_steps == 1 ? "step" : fmt::format("{} steps", r.routing_window_steps),
      r.num_experts));
  const std::string what = scores ? "mean routing probability" : "share of assignments";
  screen.line("  layer  load CV  max/mean  of ranks  entropy   dead  dropped    aux   " + what);
  for (const LayerReport* layer : layers) {
    const RoutingMetrics& m = layer->metrics;
    const std::vector<double>& shares = scores ? layer->mean_probability : layer->load_share;
    const auto [low, high] = std::minmax_element(shares.begin(), shares.end());
    // A balanced expert stands at half height; twice its fair share fills the column.
    screen.line(
        fmt::format("  {:>5}  {:>7.3f}  {:>8.2f}  {:>8.2f}  {:>7.3f}  {:>5}  {:>7}  {:>5}   ",
                    layer->layer, m.load_cv, m.imbalance_experts, m.imbalance_ranks, m.entropy,
                    percent(m.dead_share, 0), percent(m.dropped_share),
                    scores ? fmt::format("{:.2f}", layer->aux) : "-") +
        sparkline(shares, 16, 2 / experts, screen.style()) +
        fmt::format(" {:.1f}-{:.1f} %", 100 * *low, 100 * *high));
  }
  std::vector<std::string> pieces;
  double aux = 0, z = 0, importance = 0, variance = 0;
  for (const LayerReport& layer : r.layers) {
    const auto n = static_cast<double>(r.layers.size());
    aux += layer.aux / n, z += layer.z / n;
    importance += layer.importance / n, variance += layer.load_variance / n;
  }
  if (!scores) {
    pieces.push_back("unknown: no router scores");
  } else {
    const auto with = [](const char* name, double value, double factor) {
      return factor > 0
                 ? fmt::format("{} {:.4g} x {:g} = {:.4g}", name, value, factor, value * factor)
                 : fmt::format("{} {:.4g} (off)", name, value);
    };
    pieces.push_back(with("balance", aux, r.aux_loss_factor));
    pieces.push_back(with("z", z, r.z_loss_factor));
    pieces.push_back(with("importance CV^2", importance, r.importance_loss_factor));
    pieces.push_back(fmt::format("load variance {:.4g}", variance));
  }
  screen.say("Auxiliary losses", pieces);
}

/// Of each kind the first layers, and in how many more it is found.
void verdicts(Screen& screen, const Report& r) {
  if (!r.verdicts.empty()) screen.heading("Verdicts");
  size_t of_kind = 0;
  for (size_t i = 0; i < r.verdicts.size(); ++i) {
    const Verdict& verdict = r.verdicts[i];
    of_kind = i > 0 && r.verdicts[i - 1].kind == verdict.kind ? of_kind + 1 : 0;
    const bool more = i + 1 < r.verdicts.size() && r.verdicts[i + 1].kind == verdict.kind;
    if (of_kind < kVerdictsShown) {
      const std::string place = verdict_place(verdict);
      if (!place.empty()) screen.words(verdict.kind, place);
      screen.words(place.empty() ? verdict.kind : "", verdict.evidence + ".");
    } else if (!more) {
      screen.words("", fmt::format("And in {} more layers: see report.json, or moetwin diagnose.",
                                   of_kind + 1 - kVerdictsShown));
    }
    // Once for all layers of a kind.
    if (!verdict.advice.empty() && !(more && r.verdicts[i + 1].advice == verdict.advice))
      screen.words("", "What helps: " + verdict.advice + ".");
  }
}

}  // namespace

std::string summary(const Report& r, const ScreenStyle& style) {
  Screen screen(style);
  screen.line(fmt::format("{} on {}: {}, {}", r.scenario, r.backend, sizes_text(r), r.device_name));
  if (!r.cluster.empty()) screen.words("Machine", r.cluster);
  training(screen, r);
  throughput(screen, r);
  step_parts_lines(screen, r);
  traffic(screen, r);
  if (!r.collectives.empty()) screen.line("");
  for (const std::string& line : collective_table_lines(r.collectives, kCollectivesShown))
    screen.line(line);
  if (!r.ops.by_op.empty()) screen.line("");
  for (const std::string& line : op_table_lines(r.ops, kOpsShown)) screen.line(line);
  memory(screen, r);
  routing(screen, r);
  if (!r.error.empty()) {
    screen.line("");
    screen.words("Ended by", r.error);
  }
  faults(screen, r);
  verdicts(screen, r);
  if (!r.notes.empty()) screen.line("");
  for (const std::string& note : r.notes) screen.words("Note", note);
  return screen.text();
}

}  // namespace moetwin
