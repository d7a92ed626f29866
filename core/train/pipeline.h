#pragma once
// Runs micro-batches through this rank's part of the model in the order of a schedule. Without
// pipeline parallelism the same: one stage, forward and backward in turns.

#include <map>
#include <vector>

#include "core/base/turns.h"
#include "core/parallel/gradient_reducer.h"
#include "core/parallel/pipeline_schedule.h"
#include "core/parallel/stage_exchange.h"
#include "core/train/batches.h"
#include "core/train/model.h"
#include "core/train/step_figures.h"

namespace moetwin {

class Pipeline {
 public:
  Pipeline(Context& context, const Scenario& scenario, const PipelineShape& shape,
           const Communicators& communicators, const Batches& batches, Model& model);

  /// Forward and backward of every micro-batch of a step, losses times `loss_scale`: adds gradients
  /// and figures, and has the reducer begin where the last micro-batch is through a block. `watch`:
  /// of MicroBatch, may be null.
  void train(int64_t step, double loss_scale, RoutingWatch* watch, StepFigures& figures,
             GradientReducer& reducer);
  /// Forwards of these sequences; adds {sum of losses, valid tokens} to sums real [2], where there
  /// are any: without, the head is left out. `seen`: called after each forward of a chunk.
  void evaluate(int64_t step, const Sequences& sequences, const Tensor& sums,
                RoutingWatch* watch = nullptr,
                const std::function<void(const MicroBatch&)>& seen = nullptr);

 private:
  /// A micro-batch in a chunk, from its forward to the end of its backward.
  struct InFlight {
    MicroBatch batch;
    ModelChunk::Saved saved;
    std::vector<OpCall> later;  ///< gradients of parameters that wait for their turn
  };
  struct Step;
  /// `sequences`: to evaluate; null: of the training step.
  void forward(Context& context, const PipelineAction& action, InFlight& at, const Tensor& sums,
               const Sequences* sequences);
  void run(Context& context, const PipelineAction& action, Step& step);
  /// Side by side, on contexts of their own.
  void run_pair(const PipelineAction& first, const PipelineAction& second, Step& step);
  void train_forward(Context& context, const PipelineAction& action, Step& step);
  void backward(Context& context, const PipelineAction& action, Step& step);
  void backward_weight(const PipelineAction& action, Step& step);
  ModelChunk& chunk(const PipelineAction& action) {
    return model_.chunks()[static_cast<size_t>(action.chunk)];
  }

  Context& context_;
  const Batches& batches_;
  Model& model_;
  PipelineShape shape_;
  int64_t slices_;  ///< ranks that share the tokens of a hidden state (sequence parallel)
  std::vector<PipelineAction> schedule_;
  StageExchange exchange_;
  Turns turns_;
};

}  // namespace moetwin
