#include "analysis/judge.h"

#include <filesystem>

#include "analysis/result/run.h"
#include "analysis/router_share.h"
#include "analysis/stability/stability.h"

namespace moetwin {

void judge_run(const std::string& directory, const Scenario& scenario, const Grid& grid,
               Report& report) {
  RoutingSeries routing = read_routing_csv(directory + "/routing.csv");
  const std::string probe = directory + "/probe.csv";
  if (std::filesystem::exists(probe)) read_probe_csv(probe, routing);
  const StabilityReport stability = analyse_stability(
      routing, loss_series(CsvTable(directory + "/steps.csv")), stability_options(scenario, grid));
  const RouterShare router = router_share(read_op_lists(directory + "/timeline.json"));
  if (router.router > 0) report.router_share_of_compute = router.share();
  for (const Finding& finding : stability.findings) report.verdicts.push_back(to_verdict(finding));
  for (const std::string& note : stability.notes) report.notes.push_back(note);
}

}  // namespace moetwin
