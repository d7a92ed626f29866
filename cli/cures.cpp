#include "cli/cures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "cli/estimates.h"
#include "cli/machines.h"
#include "cli/text_table.h"
#include "core/base/error.h"
#include "core/base/units.h"

namespace moetwin {

namespace {
/// Steps that are looked at, evenly over the run.
constexpr int64_t kSteps = 5;

[[noreturn]] void refuse(const std::string& run, const std::string& what) {
  throw Error(ErrorClass::configuration, fmt::format("--cures: {}: {}", run, what));
}
}  // namespace

std::vector<Cure> cures_of(const Run& run) {
  if (!run.scenario || !run.has_file("routing.csv"))
    refuse(run.name, "needs a run directory with report.json and routing.csv");
  const Scenario& scenario = *run.scenario;
  if (scenario.rebalancing.kind != "none")
    refuse(run.name, fmt::format("was run with rebalancing.kind {}; legal: the run without (none)",
                                 scenario.rebalancing.kind));
  if (possible_cures(scenario).empty())
    refuse(
        run.name,
        "no kind of rebalancing goes with its layout; legal: expert_parallel_size of at least 2, "
        "see docs/rebalancing.md");
  const auto measured = static_cast<int64_t>(report_number(run.report, "steps_done"));
  std::vector<Scenario> steps;
  const int64_t looked = std::clamp<int64_t>(measured, 1, kSteps);
  for (int64_t i = 0; i < looked; ++i)
    steps.push_back(
        with_recorded_routing(scenario, run.directory, 1 + (2 * i + 1) * measured / (2 * looked)));
  const double seconds = report_number(run.report, "throughput.step_seconds_median");
  return predict_cures(steps, std::isfinite(seconds) ? seconds : 0,
                       estimates(machine_profile(scenario)));
}

void print_cures(std::ostream& out, const std::vector<Cure>& cures) {
  out << "\nRebalancing, predicted from the loads of this run\n";
  TextTable table({true, false, false, false});
  table.row({"cure", "step", "saves", "memory"});
  for (const Cure& cure : cures)
    table.row({cure.name, format_seconds(cure.step_seconds),
               fmt::format("{:.1f} %", 100 * cure.gain),
               (cure.more_bytes < 0 ? "-" : "+") +
                   format_bytes(std::abs(static_cast<double>(cure.more_bytes)))});
  table.print(out);
}

Json::Value cures_json(const std::vector<Cure>& cures) {
  Json::Value all(Json::arrayValue);
  for (const Cure& cure : cures) {
    Json::Value one;
    one["kind"] = cure.rebalancing.kind;
    one["redundant_experts"] = Json::Int64(cure.rebalancing.redundant_experts);
    one["step_seconds"] = cure.step_seconds;
    one["gain"] = cure.gain;
    one["more_bytes"] = Json::Int64(cure.more_bytes);
    all.append(one);
  }
  return all;
}

}  // namespace moetwin
