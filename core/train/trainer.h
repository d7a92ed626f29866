#pragma once
// The training loop of one rank: what both machines run.

#include <functional>
#include <memory>
#include <vector>

#include "core/device/allocator.h"
#include "core/device/backend.h"
#include "core/moe/balance.h"
#include "core/moe/routing_trace.h"
#include "core/parallel/communicators.h"
#include "core/parallel/flat_parameters.h"
#include "core/parallel/fsdp.h"
#include "core/parallel/gradient_reducer.h"
#include "core/record/run_sink.h"
#include "core/scenario/scenario.h"
#include "core/topology/grid.h"
#include "core/train/batches.h"
#include "core/train/checkpoint/saver.h"
#include "core/train/data.h"
#include "core/train/expert_moves.h"
#include "core/train/loss_scaler.h"
#include "core/train/model.h"
#include "core/train/optimizer.h"
#include "core/train/pipeline.h"
#include "core/train/probe.h"
#include "core/train/replica_check.h"
#include "core/train/step_figures.h"

namespace moetwin {

class Trainer;

/// Called by every rank; for tests and tools that look inside.
struct TrainerHooks {
  std::function<void(Trainer&, int64_t step)> after_gradients;  ///< reduced, before the optimizer
  std::function<void(Trainer&, int64_t step)> after_step;
};

/// What all ranks of a process share.
struct TrainerServices {
  const TokenSource* data = nullptr;  ///< may be null with numerics none
  RunSink* recorder = nullptr;
  std::shared_ptr<const RoutingTrace> trace;  ///< load_trace(scenario)
  CheckpointWriter* checkpoints = nullptr;    ///< null: nothing is saved
  const Checkpoint* resume = nullptr;         ///< where training begins; null: at step 0
  /// Asked by every rank after each step, with the same answer for the same step: end here, whole
  /// steps only.
  std::function<bool(int64_t step)> stop_after;
  TrainerHooks hooks;
};

class Trainer {
 public:
  Trainer(Backend& device, const Scenario& scenario, const Grid& grid,
          const TrainerServices& services);
  /// All steps, with validation where asked for.
  void run();

  Context& context() { return context_; }
  std::vector<FlatGroup>& groups() { return groups_; }
  ParameterSet& parameters() { return parameters_; }
  /// Of the first `sequences` sequences of the training data, in evaluation: [T, classes] of this
  /// rank for each micro-batch it works on, on the ranks of the last stage.
  std::vector<Tensor> logits(int64_t sequences);
  GradientReducer& reducer() { return reducer_; }
  BalanceState& balance() { return balance_; }
  TrainingState& state() { return state_; }
  /// real [2]: factor on gradients and norm before clipping, of this step once it is over.
  const Tensor& clip_factor() const { return figures_.factor(); }
  int64_t rank() const { return context_.device.properties().rank; }

 private:
  void train_step(int64_t step);
  /// Reads the step's figures and hands them to the record.
  void report(int64_t step);
  void validate(int64_t step);
  /// Updates, or leaves the update out on all ranks where the gradients of the world overflowed.
  void update(int64_t step);
  double host_value(const Tensor& tensor);  ///< real [1]
  TrainingPosition position(int64_t step) const;
  /// What was done since the last step is in no step.
  void leave_out(int64_t step);
  /// Routes the probe batch with the weights that `step` begins with.
  void probe(int64_t step);

  const Scenario& scenario_;
  TrainerServices services_;
  Coordinates at_;
  std::vector<int64_t> moe_layers_;  ///< of this rank
  Allocator memory_;
  Context context_;
  Communicators communicators_;
  Batches batches_;
  StepFigures figures_;
  BalanceState balance_;
  ParameterSet parameters_;
  Model model_;
  std::vector<FlatGroup> groups_;
  ExpertMoves moves_;
  GradientReducer reducer_;
  Fsdp fsdp_;
  Optimizer optimizer_;
  LossScaler scaler_;
  TrainingState state_;
  Saver saver_;
  Pipeline pipeline_;
  int64_t first_step_ = 0;  ///< the one before the first
  int64_t updates_ = 0;     ///< steps that were not skipped
  double step_scale_ = 1;   ///< loss scale of the step
  bool skipped_ = false;    ///< the step's update was left out
  Probe probe_;
  ReplicaCheck replicas_;
  double last_end_ = 0;
};

}  // namespace moetwin
