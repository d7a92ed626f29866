#pragma once
// Trains a scenario on the modelled cluster in a child process and brings back what tests compare:
// gradients, parameters, losses.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backends/sim/cluster.h"
#include "core/scenario/scenario.h"

namespace moetwin::test {

/// Global tensors by name, in double, put together from the parts that ranks own.
using GlobalTensors = std::map<std::string, std::vector<double>>;

struct TrainResult {
  GlobalTensors gradients;                     ///< of step 1, reduced, before clipping
  GlobalTensors parameters;                    ///< after the last step
  std::vector<double> losses, gradient_norms;  ///< per step
  std::vector<std::vector<int64_t>> counts;  ///< per step: expert counts of all MoE layers, joined
  std::vector<double> step_seconds;          ///< simulated
  /// Checksums of the parameters after the last step as each rank holds them, by rank and name:
  /// replicas must agree.
  std::vector<std::map<std::string, uint64_t>> checksums;
};

struct TrainRunOptions {
  int threads = 1;
  bool check_access = true;
  bool poison = true;
  double timeout_seconds = 120;
};

/// The modelled cluster with the shipped profiles and the best reference arithmetic of this
/// processor.
SimOptions sim_options(int threads = 1);

/// Data is the synthetic chain of the scenario's vocabulary.
TrainResult train_in_child(const Scenario& scenario, const TrainRunOptions& options = {});

/// The largest over tensors of norm(a - b) / max(norm(b), floor * norm(all of b)), and the tensor
/// where; names must agree.
struct Distance {
  double value = 0;
  std::string where;
};
Distance distance(const GlobalTensors& a, const GlobalTensors& b, double floor = 1e-3);

}  // namespace moetwin::test
