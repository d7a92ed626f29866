// `moetwin plan FILE`: the best way to train a scenario on its cluster, and what it costs.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <ostream>

#include "analysis/batch/processes.h"
#include "analysis/plan/parallel.h"
#include "analysis/plan/render.h"
#include "analysis/plan/search.h"
#include "analysis/plan/validated.h"
#include "analysis/validate/step_run.h"
#include "backends/sim/cluster.h"
#include "cli/estimates.h"
#include "cli/machines.h"
#include "cli/proxy.h"
#include "cli/scenario_arguments.h"
#include "cli/shipped.h"
#include "cli/verbs.h"
#include "core/base/error.h"
#include "core/base/units.h"
#include "core/moe/rebalancing/policy.h"
#include "core/ops/isa.h"
#include "core/record/json_text.h"
#include "core/record/output_file.h"

namespace moetwin {
namespace {

struct PlanArguments {
  ScenarioArguments scenario;
  std::vector<std::string> over;
  std::string write;
  int64_t gpus = 0;
  size_t top = 5, confirm = 5;
  double tokens = 0;
  bool json = false, quiet = false;
};

/// The scenario on another number of GPUs: as many sequences for each as before.
Scenario on_gpus(Scenario scenario, int64_t gpus) {
  int64_t& world = scenario.distributed_config.world_size;
  int64_t& batch = scenario.training_config.global_batch_size;
  batch =
      std::max(gpus, static_cast<int64_t>(static_cast<double>(batch) / static_cast<double>(world) *
                                          static_cast<double>(gpus)));
  world = gpus;
  scenario.cluster.nodes = 0;
  return scenario;
}

PlanSpace space_of(const PlanArguments& a, const Scenario& scenario, const PlanMachine& machine) {
  PlanSpace space = plan_space(scenario, machine.gpus_per_node);
  for (const std::string& text : a.over) narrow(space, parse_axis(text));
  return space;
}

/// Simulates the first `count` in processes of their own and puts the fastest of them first.
void confirm(PlanSearch& search, const Scenario& scenario, size_t count) {
  count = std::min(count, search.fitting.size());
  const auto results = run_in_processes(count, [&](size_t i) {
    Scenario s = planned(scenario, search.fitting[i].point);
    s.cluster.fidelity = "fluid";
    s.training_config.steps = 2;
    s.training_config.warmup_steps_excluded = 1;
    // Those of an interval of rebalancing would take long.
    if (!by_interval(s.rebalancing)) {
      const std::vector<int64_t> steps = steps_looked_at(scenario);
      s.training_config.steps = std::max<int64_t>(2, steps.back());
      s.training_config.warmup_steps_excluded = std::max<int64_t>(1, steps.front() - 1);
    }
    s.memory.on_exceed = "report";
    const Report report = run_steps(s, [](const Scenario& one) {
      SimOptions sim;
      sim.threads = 1;
      sim.references = [isa = best_isa()](const Op& op) { return reference_of(op, isa); };
      sim.profile_directories = shipped_directories(one, "clusters");
      return make_sim_cluster(one, sim);
    });
    return std::string(reinterpret_cast<const char*>(&report.step_seconds_median), sizeof(double));
  });
  for (size_t i = 0; i < count; ++i) {
    if (!results[i].ok) throw Error(results[i].error_class, results[i].error);
    std::memcpy(&search.fitting[i].fluid_step_seconds, results[i].bytes.data(), sizeof(double));
  }
  std::stable_sort(search.fitting.begin(),
                   search.fitting.begin() + static_cast<std::ptrdiff_t>(count),
                   [](const PlanResult& a, const PlanResult& b) {
                     return a.fluid_step_seconds < b.fluid_step_seconds;
                   });
}

/// The smallest number of whole nodes on which something fits; 0: none up to 1,024 times as many.
int64_t smallest_that_fits(const PlanArguments& a, const Scenario& scenario,
                           const ClusterProfile& profile, const PlanMachine& machine) {
  const auto fits = [&](int64_t gpus) {
    const Scenario larger = on_gpus(scenario, gpus);
    try {
      return !search_plan(larger, memory_space(space_of(a, larger, machine)), machine,
                          estimates(profile))
                  .fitting.empty();
    } catch (const Error& error) {
      if (error.error_class() != ErrorClass::configuration) throw;
      return false;  // no layout of that many
    }
  };
  const int64_t node = machine.gpus_per_node, world = scenario.distributed_config.world_size;
  int64_t low = world / node, high = std::max<int64_t>(1, 2 * low);
  while (!fits(high * node)) {
    low = high;
    high *= 2;
    if (high * node > 1024 * world) return 0;
  }
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (fits(middle * node) ? high : low) = middle;
  }
  return high * node;
}

int plan(const PlanArguments& a, const Output& output) {
  std::vector<std::string> warnings;
  Scenario scenario = read_scenario(a.scenario, &warnings);
  for (const std::string& warning : warnings) output.err << "warning: " << warning << "\n";
  if (a.gpus > 0) scenario = on_gpus(scenario, a.gpus);
  scenario.training_config.numerics = "none";
  train_proxy(scenario, output, false);
  const ClusterProfile profile = machine_profile(scenario);
  if (scenario.cluster.price_per_gpu_hour == 0) {
    scenario.cluster.price_per_gpu_hour = profile.price_per_gpu_hour;
    scenario.cluster.currency = profile.currency;
  }
  const int64_t world = scenario.distributed_config.world_size;
  PlanContext context;
  context.machine = {profile.gpus_per_node, static_cast<int64_t>(profile.gpu.memory.value)};
  context.scenario = &scenario;
  context.cluster =
      fmt::format("{} GPUs, {} a node, {} with {} (modelled)", world, profile.gpus_per_node,
                  profile.gpu.name, format_bytes(profile.gpu.memory.value));
  context.shown = a.top;
  context.tokens = a.tokens;
  const ValidatedError validated = validated_error(
      shipped_scenario_directories(), scenario.model_config.moe_layer_config.num_experts > 0);
  context.median_error = validated.median;
  context.error_source = validated.source;

  PlanSearch search =
      search_plan_in_processes(scenario, space_of(a, scenario, context.machine), context.machine,
                               [&profile] { return estimates(profile); });
  if (search.fitting.empty()) {
    output.out << (a.json ? json_text(plan_json(context, search))
                          : nothing_fits_text(context, search));
    const int64_t enough = smallest_that_fits(a, scenario, profile, context.machine);
    output.err << fmt::format("moetwin: nothing fits on {} GPUs; {}\n", world,
                              enough > 0 ? fmt::format("{} would do (`--gpus {}`)", enough, enough)
                                         : "no number of them would do");
    return static_cast<int>(ErrorClass::capacity);
  }
  if (a.confirm > 0) confirm(search, scenario, a.confirm);
  if (!a.write.empty()) {
    namespace fs = std::filesystem;
    const fs::path base = fs::absolute(find_scenario(a.scenario.file));
    OutputFile file(a.write);
    file.write(winner_text(context, search.fitting.front(),
                           base.lexically_proximate(fs::absolute(a.write).parent_path()).string()));
    file.commit();
  }
  output.out << (a.json ? json_text(plan_json(context, search)) : plan_text(context, search));
  if (!a.write.empty() && !a.json)
    output.out << fmt::format("Written: {} (`moetwin run {} --numerics none`)\n", a.write, a.write);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "plan", "Find the best layout for a scenario on its cluster, and its price");
  auto a = std::make_shared<PlanArguments>();
  add_scenario_arguments(*verb, a->scenario);
  verb->add_option("--gpus", a->gpus, "Another number of GPUs; the global batch follows")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  verb->add_option("--over", a->over, "Only these values of a key that the plan chooses")
      ->type_name("KEY=A,B,...")
      ->take_all();
  verb->add_option("--top", a->top, "Rows of the ranking (default 5)")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  verb->add_option("--confirm", a->confirm,
                   "Simulate the first N with the fluid network (default 5; 0: none)")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--tokens", a->tokens,
                   "Tokens of the training, for the price (default: those of the scenario's steps)")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  verb->add_option("--write", a->write, "Write the best as a scenario that extends this one")
      ->type_name("FILE");
  verb->add_flag("--json", a->json, "Print JSON");
  verb->footer(
      "Examples:\n"
      "  moetwin plan scenarios/seed-high-dp-fits.json\n"
      "  moetwin plan scenarios/seed-high-dp-fits.json --gpus 256 --tokens 1e12 --write best.json\n"
      "  moetwin plan FILE --over distributed_config.tensor_parallel_size=1,2 --set "
      "cluster.price_per_gpu_hour=2\n"
      "  moetwin plan FILE --over model_config.moe_layer_config.capacity_factor=null,1,1.25,2");
  verb->callback([a, &action] { action = [a](const Output& output) { return plan(*a, output); }; });
}

}  // namespace moetwin
