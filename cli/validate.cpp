// `moetwin validate`: published measurements against what the modelled cluster says of them.

#include "analysis/validate/validate.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <ostream>
#include <thread>

#include "analysis/validate/page.h"
#include "backends/sim/cluster.h"
#include "backends/sim/representative/estimate.h"
#include "cli/environment.h"
#include "cli/machines.h"
#include "cli/shipped.h"
#include "cli/verbs.h"
#include "core/ops/isa.h"
#include "core/record/json_text.h"
#include "core/record/output_file.h"

namespace moetwin {
namespace {

struct ValidateArguments {
  ValidateOptions options;
  std::string json_file, page_file, fidelity = "representative";
  bool quiet = false;
};

/// Machines for predictions: no worker threads, so that a process with one can be forked.
std::unique_ptr<Cluster> modelled(const Scenario& scenario) {
  SimOptions sim;
  sim.threads = 1;
  sim.references = [isa = best_isa()](const Op& op) { return reference_of(op, isa); };
  sim.profile_directories = shipped_directories(scenario, "clusters");
  return make_sim_cluster(scenario, sim);
}

/// The same without its ranks.
StepEstimate estimated(const Scenario& scenario) {
  Estimator estimator(machine_profile(scenario),
                      [isa = best_isa()](const Op& op) { return reference_of(op, isa); });
  const Estimate estimate = estimator.estimate(scenario);
  StepEstimate out;
  Report& report = out.report;
  report.step_seconds_median = estimate.step_seconds;
  report.mfu = estimate.mfu;
  report.parts = estimate.parts;
  for (const StageEstimate& stage : estimate.stages) {
    if (stage.peak_bytes == estimate.peak_bytes) report.classes_of_fullest = stage.classes;
    report.peak_bytes_per_rank.push_back(stage.peak_bytes);
    report.device_bytes_per_rank.push_back(stage.peak_bytes + stage.communicator_bytes +
                                           estimate.context_bytes);
    const auto of = [&](MemoryClass c) { return stage.lasting[static_cast<size_t>(c)]; };
    StageMemory memory;
    memory.peak = stage.peak_bytes;
    memory.optimizer = of(MemoryClass::optimizer);
    memory.gradients = of(MemoryClass::gradients);
    memory.states = memory.optimizer + memory.gradients + of(MemoryClass::parameters);
    memory.kept = stage.kept_bytes;
    out.stages.push_back(memory);
  }
  // Blocks of the caching allocator are not estimated: at least what tensors need.
  report.reserved_bytes = estimate.peak_bytes;
  report.context_bytes = estimate.context_bytes;
  return out;
}

int run_validate(ValidateArguments a, const Output& output) {
  BatchOptions& batches = a.options.batches;
  if (batches.processes <= 0)
    batches.processes = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (!a.quiet && is_terminal(output.err))
    batches.progress = [&output](size_t done, size_t all) {
      output.err << fmt::format("\r{} of {} runs{}", done, all, done == all ? "\n" : "")
                 << std::flush;
    };
  const std::vector<KindResult> results =
      validate(a.options, a.fidelity == "representative" ? MakeCluster(modelled, estimated)
                                                         : MakeCluster(modelled));
  const std::string json = json_text(validation_json(results));
  if (!a.page_file.empty()) {
    OutputFile file(a.page_file);
    file.write(validation_page(results));
    file.commit();
  }
  const bool print_json = a.json_file == "-";
  if (!a.json_file.empty() && !print_json) {
    OutputFile file(a.json_file);
    file.write(json);
    file.commit();
  }
  output.out << (print_json ? json : validation_text(results));
  return 0;
}

}  // namespace

void add_validate(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "validate", "Compare the modelled cluster with published measurements, row by row");
  auto a = std::make_shared<ValidateArguments>();
  a->options.batches.processes = 0;
  verb->add_option("--data", a->options.data,
                   "Directory with nccl.csv, gemm.csv, ..., or one such table")
      ->type_name("PATH")
      ->required();
  verb->add_option("--kind", a->options.kinds,
                   "Only these kinds: collectives, gemm, dense, moe, memory")
      ->type_name("KIND[,KIND]")
      ->delimiter(',');
  verb->add_option("--series", a->options.series, "Only series whose name begins like this")
      ->type_name("NAME");
  verb->add_option("--sample", a->options.sample, "At most N rows of a series, evenly spaced")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  verb->add_option("--fidelity", a->fidelity,
                   "Training steps: representative (estimated) or fluid (every rank is run)")
      ->check(CLI::IsMember({"representative", "fluid"}));
  verb->add_option("--processes", a->options.batches.processes,
                   "Simulations at once (default: one a core)")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  verb->add_option("--seconds", a->options.batches.seconds,
                   "A simulation that takes longer is given up")
      ->type_name("S")
      ->check(CLI::PositiveNumber);
  verb->add_option("--all-seconds", a->options.batches.all_seconds,
                   "No simulation begins after that long; what was not run is said")
      ->type_name("S")
      ->check(CLI::PositiveNumber);
  verb->add_option("--json", a->json_file, "Write JSON to FILE; without one, print it")
      ->type_name("FILE")
      ->expected(0, 1)
      ->default_str("-");
  verb->add_option("--page", a->page_file, "Write a page with predicted-against-measured plots")
      ->type_name("FILE");
  verb->add_flag("--quiet", a->quiet, "No progress");
  verb->footer(
      "Examples:\n"
      "  moetwin validate --data published\n"
      "  moetwin validate --data published/nccl.csv --series NC-ECHO\n"
      "  moetwin validate --data published --kind dense --sample 5 --json out.json");
  verb->callback(
      [a, &action] { action = [a](const Output& output) { return run_validate(*a, output); }; });
}

}  // namespace moetwin
