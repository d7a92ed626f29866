#pragma once
// A sweep's directory: sweep.json says which runs it has, points/0000 ... hold them, each a run
// directory with a point.json once it has ended. So a sweep that was stopped goes on where it was,
// and several machines can each run some of its points.

#include <json/value.h>

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/sweep/points.h"

namespace moetwin {

/// What was asked for. Schema moetwin-sweep/1.
struct SweepPlan {
  std::string scenario;              ///< path as given
  std::string backend = "sim";       ///< sim | cuda
  std::vector<std::string> options;  ///< of every run: "--set", "key=value", ...
  std::vector<Axis> axes;
  Combination combination = Combination::grid;
  /// Of the scenario with what it extends; another text is another sweep.
  std::string scenario_text;

  std::vector<std::vector<std::string>> points() const { return sweep_points(axes, combination); }
};

enum class PointState { missing, done, refused, does_not_fit, failed };
const char* point_state_name(PointState state);
/// Of the exit code of a run.
PointState point_state(int exit_code);

/// One run of a sweep and what came of it.
struct SweepPoint {
  size_t index = 0;
  std::vector<std::string> overrides;  ///< "key=value", in the order of the axes
  PointState state = PointState::missing;
  int exit_code = -1;
  std::string message;    ///< why it is not done
  Json::Value report;     ///< report.json; null: none
  std::string directory;  ///< points/0007
  /// The value of an axis.
  std::string value(const Axis& axis) const;
};

/// Writes DIR/sweep.json, or where there is one checks that it is of the same plan: throws
/// Error(configuration) naming what differs.
void open_sweep(const std::string& directory, const SweepPlan& plan);
/// What DIR/sweep.json says. Throws Error(configuration) where there is none.
SweepPlan read_sweep(const std::string& directory);

/// The directory of a point, below that of the sweep: "points/0007".
std::string point_directory(size_t index);
/// Writes DIR/points/NNNN/point.json: the run has ended.
void finish_point(const std::string& directory, size_t index,
                  const std::vector<std::string>& overrides, int exit_code,
                  const std::string& message);
/// One point with what is known of it.
SweepPoint read_point(const std::string& directory, size_t index,
                      const std::vector<std::string>& overrides);
/// All points of the plan with what is known of each. Throws Error(configuration) where a
/// point.json or report.json is broken.
std::vector<SweepPoint> read_points(const std::string& directory, const SweepPlan& plan);

}  // namespace moetwin
