// `moetwin diagnose RUN`: what is wrong with a run's routing and what bounds its step, in words.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <ostream>

#include "analysis/bottleneck.h"
#include "analysis/result/run.h"
#include "analysis/stability/stability.h"
#include "cli/cures.h"
#include "cli/text_table.h"
#include "cli/verbs.h"
#include "core/record/json_text.h"

namespace moetwin {
namespace {

struct DiagnoseArguments {
  std::string run;
  int64_t experts = 0, skip = -1;
  bool json = false, cures = false;
};

std::string number(double value, int digits = 2) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

void print_finding(std::ostream& out, const Finding& f) {
  std::string head = f.kind;
  if (f.layer >= 0) head += fmt::format(", layer {}", f.layer);
  if (!f.strength.empty()) head += fmt::format(", {}", f.strength);
  if (f.onset_step >= 0) head += fmt::format(", from step {}", f.onset_step);
  if (f.end_step >= 0) head += fmt::format(" to {}", f.end_step);
  if (f.period_steps > 0) head += fmt::format(", period {:.3g} steps", f.period_steps);
  if (f.amplitude >= 0) head += fmt::format(", amplitude {:.2f} of the mean load", f.amplitude);
  out << fmt::format("  {} (confidence {:.2f})\n    {}\n", head, f.confidence, f.evidence);
  for (const Knob& knob : f.knobs)
    out << fmt::format("    - {}: {}; {}\n", knob.key, knob.change, knob.effect);
}

void print_layers(std::ostream& out, const StabilityReport& report) {
  if (report.layers.empty()) return;
  out << "\nLoads and probe, means over the last steps\n";
  TextTable table({false, true, false, false, false, false, false, false, false, false});
  table.row(
      {"layer", "steps", "CV", "max/mean", "ranks", "entropy", "dead", "dropped", "churn", "harm"});
  for (const LoadMetrics& m : report.layers)
    table.row({std::to_string(m.layer), fmt::format("{}-{}", m.first_step, m.last_step),
               number(m.per_step.load_cv), number(m.per_step.imbalance_experts),
               number(m.per_step.imbalance_ranks), number(m.per_step.entropy),
               number(m.per_step.dead_share), number(m.dropped_share), number(m.churn, 3),
               number(m.harm)});
  table.print(out);
}

int run_diagnose(const DiagnoseArguments& a, const Output& output) {
  const Run run = read_run(a.run, a.experts);
  StabilityOptions options = stability_options(run);
  if (a.skip >= 0) options.skip_steps = a.skip;
  const StabilityReport report = analyse_stability(run.routing, loss_series(run), options);
  const std::vector<Bottleneck> bottlenecks = find_bottlenecks(run);
  if (a.json) {
    Json::Value json = stability_json(report);
    json["schema"] = "moetwin-diagnosis/1";
    json["run"] = run.name;
    json["bottlenecks"] = bottlenecks_json(bottlenecks);
    if (a.cures) json["cures"] = cures_json(cures_of(run));
    output.out << json_text(json);
    return 0;
  }
  std::ostream& out = output.out;
  out << fmt::format("{}\n\nRouting and loss\n", run.name);
  for (const Finding& f : report.findings) print_finding(out, f);
  if (report.findings.empty()) out << "  too little to judge\n";
  for (const std::string& note : report.notes) out << fmt::format("  note: {}\n", note);
  if (!bottlenecks.empty()) out << "\nWhat bounds the step\n";
  for (const Bottleneck& b : bottlenecks) {
    out << fmt::format("  {} bound\n    {}\n", b.kind, b.evidence);
    for (const std::string& line : b.advice) out << fmt::format("    - {}\n", line);
  }
  print_layers(out, report);
  if (a.cures) print_cures(out, cures_of(run));
  return 0;
}

}  // namespace

void add_diagnose(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "diagnose", "Say in words what is wrong with a run's routing and what bounds its step");
  auto a = std::make_shared<DiagnoseArguments>();
  verb->add_option("RUN", a->run,
                   "A run directory, a routing.csv, or Megatron's routing records (a .jsonl file "
                   "or their directory)")
      ->required();
  verb->add_option("--experts", a->experts,
                   "Experts of a layer, where Megatron's records do not show them all")
      ->type_name("N");
  verb->add_option("--skip", a->skip, "Steps in which a router may still find its way (300)")
      ->type_name("N");
  verb->add_flag("--cures", a->cures,
                 "Predict what replicas, shadows or spilling of experts would save the run");
  verb->add_flag("--json", a->json, "Print verdicts and figures as JSON");
  verb->footer(
      "Examples:\n"
      "  moetwin diagnose runs/routing-oscillation\n"
      "  moetwin diagnose runs/quickstart --json\n"
      "  moetwin diagnose runs/skewed --cures\n"
      "  moetwin diagnose megatron/tokens_per_expert --experts 64");
  verb->callback(
      [a, &action] { action = [a](const Output& output) { return run_diagnose(*a, output); }; });
}

}  // namespace moetwin
