#pragma once
// What has to be run for predictions, and running it in child processes: a process has one
// simulation, so independent ones are processes anyway, and all cores take part.

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "analysis/validate/step_memory.h"
#include "core/device/backend.h"
#include "core/scenario/scenario.h"

namespace moetwin {

/// The modelled machine that a scenario asks for, as the caller of the analysis makes it: no
/// backend is named here.
class MakeCluster {
 public:
  using Make = std::function<std::unique_ptr<Cluster>(const Scenario&)>;
  /// Times, parts and memory of a step without running its ranks.
  using Estimate = std::function<StepEstimate(const Scenario&)>;
  template <class F>
  MakeCluster(F make, Estimate estimate = nullptr)
      : make_(std::move(make)), estimate_(std::move(estimate)) {}

  std::unique_ptr<Cluster> operator()(const Scenario& scenario) const { return make_(scenario); }
  /// Whether steps are estimated; else they are run.
  bool estimates() const { return estimate_ != nullptr; }
  StepEstimate estimate(const Scenario& scenario) const { return estimate_(scenario); }

 private:
  Make make_;
  Estimate estimate_;
};

struct Prediction {
  double value = std::numeric_limits<double>::quiet_NaN();  ///< NaN: there is none
  std::string note;  ///< what the value is made of, or why there is none
};

/// Rows whose predictions come from one simulation.
struct Batch {
  std::vector<size_t> rows;  ///< what `run` answers for, as the caller numbers them
  std::function<std::vector<Prediction>(const MakeCluster&)> run;
};

struct BatchOptions {
  int processes = 1;
  double seconds = 120;      ///< a batch that takes longer is killed; its rows have no prediction
  double all_seconds = 1e9;  ///< no batch begins after that long; rows of others have no prediction
  /// Told each time batches end: how many of how many.
  std::function<void(size_t done, size_t all)> progress;
};

/// Runs every batch in a child of this process, which must have no threads, and hands each
/// prediction to `take` with its row, in the order of the batches. The result does not depend on
/// `processes`.
void run_batches(const std::vector<Batch>& batches, const MakeCluster& make,
                 const BatchOptions& options,
                 const std::function<void(size_t row, const Prediction&)>& take);

}  // namespace moetwin
