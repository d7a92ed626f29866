#include "core/train/pipeline.h"

#include <functional>
#include <optional>

namespace moetwin {

/// The training step under way.
struct Pipeline::Step {
  int64_t number;
  double loss_scale;
  RoutingWatch* watch;
  StepFigures& figures;
  GradientReducer& reducer;
  std::map<std::pair<int64_t, int64_t>, InFlight> in_flight{};  ///< by micro-batch and chunk
  InFlight& at(const PipelineAction& action) {
    return in_flight[{action.micro_batch, action.chunk}];
  }
};

Pipeline::Pipeline(Context& context, const Scenario& scenario, const PipelineShape& shape,
                   const Communicators& communicators, const Batches& batches, Model& model)
    : context_(context),
      batches_(batches),
      model_(model),
      shape_(shape),
      slices_(scenario.distributed_config.sequence_parallel
                  ? scenario.distributed_config.tensor_parallel_size
                  : 1),
      schedule_(pipeline_actions(scenario.distributed_config.pipeline_schedule, shape)),
      exchange_(context, communicators.stages, shape, scenario.model_config.hidden_size) {}

void Pipeline::train(int64_t number, double loss_scale, RoutingWatch* watch, StepFigures& figures,
                     GradientReducer& reducer) {
  Step step{number, loss_scale, watch, figures, reducer};
  const int64_t tokens = batches_.training(number, 0).tokens() / slices_;
  const auto end_of_turn = [&](size_t i) {
    return i < schedule_.size() ? i + (schedule_[i].beside_next ? 2 : 1) : i;
  };
  for (size_t i = 0; i < schedule_.size();) {
    const size_t end = end_of_turn(i);
    for (size_t next = i; next < end_of_turn(end); ++next)
      exchange_.expect(schedule_[next], tokens);
    if (schedule_[i].beside_next)
      run_pair(schedule_[i], schedule_[i + 1], step);
    else
      run(context_, schedule_[i], step);
    i = end;
  }
  exchange_.finish();
}

void Pipeline::run(Context& context, const PipelineAction& action, Step& step) {
  switch (action.work) {
    case PipelineWork::forward:
      return train_forward(context, action, step);
    case PipelineWork::backward:
    case PipelineWork::backward_input:
      return backward(context, action, step);
    case PipelineWork::backward_weight:
      return backward_weight(action, step);
  }
}

void Pipeline::run_pair(const PipelineAction& first, const PipelineAction& second, Step& step) {
  context_.turns = &turns_;
  Context one = context_, other = context_;
  context_.turns = nullptr;
  one.host_syncs = other.host_syncs = 0;
  turns_.run([&] { run(one, first, step); }, [&] { run(other, second, step); });
  context_.host_syncs += one.host_syncs + other.host_syncs;
}

void Pipeline::forward(Context& context, const PipelineAction& action, InFlight& at,
                       const Tensor& sums, const Sequences* sequences) {
  ModelChunk& part = chunk(action);
  ChunkInput input;
  std::optional<PhaseScope> phase;
  if (at.batch.training) phase.emplace(context.device, context.phase, Phase::data, "data");
  const Batches::Tokens tokens =
      batches_.load(context, at.batch, sequences, part.first(), part.last());
  input.ids = tokens.ids;
  input.targets = tokens.targets;
  phase.reset();
  if (at.batch.training) phase.emplace(context.device, context.phase, Phase::forward, "forward");
  input.hidden = exchange_.take(action);
  exchange_.send(action, part.forward(context, at.batch, input, sums, at.saved));
}

void Pipeline::train_forward(Context& context, const PipelineAction& action, Step& step) {
  InFlight& at = step.at(action);
  at.batch = batches_.training(step.number, action.micro_batch);
  at.batch.loss_scale = step.loss_scale;
  at.batch.watch = step.watch;
  forward(context, action, at, step.figures.sums(), nullptr);
  step.figures.add_counts(chunk(action), at.saved, at.batch.tokens());
}

void Pipeline::backward(Context& context, const PipelineAction& action, Step& step) {
  const PhaseScope phase(context.device, context.phase, Phase::backward, "backward");
  InFlight& at = step.at(action);
  // Micro-batches are in ascending order in every chunk.
  const bool whole = action.work == PipelineWork::backward;
  const bool last = whole && action.micro_batch + 1 == shape_.micro_batches;
  if (!whole) context.later = &at.later;
  Tensor dy = exchange_.take(action);
  const Tensor dx =
      chunk(action).backward(context, at.batch, std::move(dy), at.saved, [&](int64_t block) {
        if (last) step.reducer.block_done(context, block);
      });
  context.later = nullptr;
  exchange_.send(action, dx);
  if (whole) step.in_flight.erase({action.micro_batch, action.chunk});
}

void Pipeline::backward_weight(const PipelineAction& action, Step& step) {
  const PhaseScope phase(context_.device, context_.phase, Phase::backward, "backward");
  for (const OpCall& call : step.at(action).later) context_.launch(call);
  chunk(action).parameter_gradients_done(context_);
  step.in_flight.erase({action.micro_batch, action.chunk});
  if (action.micro_batch + 1 == shape_.micro_batches)
    step.reducer.block_done(context_, chunk(action).lowest_block());
}

void Pipeline::evaluate(int64_t step, const Sequences& sequences, const Tensor& sums,
                        RoutingWatch* watch, const std::function<void(const MicroBatch&)>& seen) {
  PipelineShape shape = shape_;
  shape.micro_batches = batches_.rounds(sequences);
  const std::vector<PipelineAction> actions = forward_actions(shape);
  const auto expect = [&](const PipelineAction& action) {
    exchange_.expect(action,
                     batches_.evaluation(step, action.micro_batch, sequences).tokens() / slices_);
  };
  for (size_t i = 0; i < actions.size(); ++i) {
    expect(actions[i]);
    if (i + 1 < actions.size()) expect(actions[i + 1]);
    InFlight at;
    at.batch = batches_.evaluation(step, actions[i].micro_batch, sequences);
    at.batch.watch = watch;
    forward(context_, actions[i], at, sums, &sequences);
    if (seen) seen(at.batch);
  }
  exchange_.finish();
}

}  // namespace moetwin
