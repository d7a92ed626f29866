#pragma once
// A run directory as the analyses read it (semantics 9).

#include <json/value.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/result/csv_table.h"
#include "analysis/result/routing_series.h"
#include "analysis/stability/loss_series.h"
#include "analysis/stability/thresholds.h"
#include "core/scenario/scenario.h"
#include "core/topology/grid.h"

namespace moetwin {

struct Run {
  std::string directory;
  std::string name;    ///< of the scenario, else of the directory
  Json::Value report;  ///< report.json; null: absent
  CsvTable steps;      ///< steps.csv; no rows: absent
  RoutingSeries routing;
  std::optional<Scenario> scenario;  ///< from the report's settings
  std::optional<Grid> grid;

  std::string file(const std::string& name) const { return directory + "/" + name; }
  bool has_file(const std::string& name) const;
};

/// `path`: a run directory; or a routing.csv, a file or a directory of Megatron's routing records
/// (then only `routing` is filled; `experts` as read_megatron_routing has it). Throws
/// Error(configuration) when there is nothing to read or a file is broken.
Run read_run(const std::string& path, int64_t experts = 0);

/// The loss and gradient norm of a run, from the table of steps.csv.
LossSeries loss_series(const CsvTable& steps);
LossSeries loss_series(const Run& run);

/// What the scenario says that the verdicts need.
StabilityOptions stability_options(const Scenario& scenario, const Grid& grid);
StabilityOptions stability_options(const Run& run);

/// report[a][b]... as a number; NaN where it is absent or null. `path`: "throughput.mfu".
double report_number(const Json::Value& report, const std::string& path);

}  // namespace moetwin
