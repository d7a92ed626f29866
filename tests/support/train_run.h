#pragma once
// Trains a scenario on the modelled cluster in a child process and brings back what tests compare:
// gradients, parameters, losses.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/sim/cluster.h"
#include "core/record/rank_step.h"
#include "core/record/step_row.h"
#include "core/scenario/scenario.h"
#include "core/train/data.h"
#include "core/train/trainer.h"

namespace moetwin::test {

/// Global tensors by name, in double, put together from the parts that ranks own.
using GlobalTensors = std::map<std::string, std::vector<double>>;

struct TrainResult {
  GlobalTensors gradients;                     ///< of step 1, reduced, before clipping
  GlobalTensors parameters;                    ///< after the last step
  std::vector<double> losses, gradient_norms;  ///< per step
  std::vector<std::vector<int64_t>> counts;  ///< per step: expert counts of all MoE layers, joined
  std::vector<double> step_seconds;          ///< simulated
  double validation_loss = 0;                ///< after the last step; NaN: there was none
  /// Checksums of the parameters after the last step as each rank holds them, by rank and name:
  /// replicas must agree.
  std::vector<std::map<std::string, uint64_t>> checksums;
  std::vector<std::vector<double>> seen;  ///< by rank: what the looks of the options found, joined
  std::vector<double> rows;               ///< what look_at_row found, joined
  std::string text;                       ///< what `say` returned
};

struct TrainRunOptions {
  int threads = 1;
  bool check_access = true;
  bool poison = true;
  double timeout_seconds = 120;
  /// Bring back gradients, parameters and checksums: reads that a plain run has not. Never with
  /// numerics none.
  bool tensors = true;
  /// Route the scenario's probe batch too, which changes nothing but takes time.
  bool probe = false;
  /// What a test wants to see, or change, inside the trainers: called on every rank after the
  /// gradients are reduced, and after the step.
  using Look = std::function<std::vector<double>(Trainer&, int64_t step)>;
  Look look_at_gradients, look_after_step;
  /// What a test wants to see of a step's row of the record.
  std::function<std::vector<double>(const StepRow&)> look_at_row;
  /// Before training, in the child.
  std::function<void(TrainerServices&)> prepare;
  /// Instead of the synthetic chain.
  std::function<std::unique_ptr<TokenSource>()> data;
  /// Instead of the scenario's profile.
  std::function<void(ClusterProfile&)> change_profile;
  /// Instead of the modelled cluster.
  std::function<std::unique_ptr<Cluster>(const Scenario&)> cluster;
  /// What each rank hands to the record, before it does.
  std::function<void(const RankStep&)> look_at_rank;
  /// Asked in the child at the end: text to bring back.
  std::function<std::string()> say;
};

/// Elements of a tensor as doubles, whatever floating type it has; waits for them.
std::vector<double> to_doubles(Trainer& trainer, const Tensor& tensor);

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
