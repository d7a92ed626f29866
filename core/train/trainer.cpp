#include "core/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/record/profile_schedule.h"
#include "core/scenario/sharding.h"

namespace moetwin {

namespace {
Context make_context(Backend& device, Allocator& memory, const TrainingConfig& config) {
  Context c{device, memory, {}, parse_dtype(config.dtype), static_cast<uint64_t>(config.seed)};
  c.streams.compute = device.stream("compute");
  c.streams.dispatch = device.stream("dispatch");
  c.streams.reduction = device.stream("reduction");
  return c;
}
}  // namespace

Trainer::Trainer(Backend& device, const Scenario& scenario, const Grid& grid,
                 const TrainerServices& services)
    : scenario_(scenario),
      services_(services),
      at_(grid.coordinates(device.properties().rank)),
      moe_layers_(
          moe_layers(scenario.model_config,
                     rank_layers(scenario.model_config, scenario.distributed_config, at_.pp))),
      memory_(device, scenario.memory.poison),
      context_(make_context(device, memory_, scenario.training_config)),
      communicators_(make_communicators(device, grid, scenario)),
      batches_(scenario, grid, at_.ddp, services.data),
      figures_(context_, moe_layers_, scenario.model_config.moe_layer_config.num_experts,
               at_.tp == 0, grid.parts_tp_groups()),
      balance_(context_, scenario.model_config, moe_layers_, figures_.balance(),
               communicators_.balance.get()),
      model_(parameters_,
             LayerSetup{scenario, grid, at_, communicators_, balance_, services.trace,
                        TensorParallel(communicators_.tp.get(),
                                       scenario.distributed_config.sequence_parallel)}),
      groups_(make_flat_groups(context_, parameters_, grid, scenario.distributed_config,
                               scenario.training_config.optimizer == "adamw")),
      moves_(context_, scenario, grid, communicators_, groups_, model_),
      reducer_(groups_, communicators_,
               scenario.distributed_config.comm_optimization.gradient_reduction_overlap,
               gathers_beside_forward(scenario) && scenario.training_config.numerics == "none"),
      fsdp_(context_, grid, scenario.distributed_config, groups_, &reducer_),
      optimizer_(scenario.training_config, groups_, communicators_.world.get(),
                 static_cast<double>(batches_.nominal_tokens())),
      scaler_(scenario.training_config.loss_scaling, context_.dtype),
      state_(context_, groups_, reducer_, balance_, scenario.model_config, at_),
      saver_(scenario.checkpoint, context_, state_, services.checkpoints),
      pipeline_(context_, scenario,
                {grid.pp(), at_.pp, batches_.per_step(),
                 scenario.distributed_config.virtual_pipeline_size,
                 scenario.distributed_config.comm_optimization.micro_batch_overlap},
                communicators_, batches_, model_),
      probe_(scenario),
      replicas_(scenario, groups_, communicators_.world.get()) {
  context_.units = &fsdp_;
  for (FlatGroup& group : groups_) group.initialise(context_);
  TrainingPosition from;
  if (services_.resume) {
    state_.restore(*services_.resume);
    from = services_.resume->manifest().position;
    if (services_.resume->manifest().optimizer != kWeightsAlone) scaler_.restore(from);
  }
  first_step_ = from.step;
  updates_ = from.updates;
  batches_.go_on_from(from.step, from.consumed_sequences);
}

TrainingPosition Trainer::position(int64_t step) const {
  TrainingPosition p;
  p.step = step;
  p.updates = updates_;
  scaler_.save(p);
  p.seed = scenario_.training_config.seed;
  p.consumed_sequences = batches_.consumed(step);
  p.data_sequences = services_.data ? services_.data->sequences(Split::train) : 0;
  return p;
}

void Trainer::run() {
  const TrainingConfig& training = scenario_.training_config;
  context_.device.synchronize(context_.streams.compute);
  leave_out(0);
  for (int64_t step = first_step_ + 1; step <= training.steps; ++step) {
    if (batches_.has_data() && probe_.due(step)) probe(step);
    train_step(step);
    if (replicas_.due(step)) {
      replicas_.run(context_, step);
      leave_out(step);
    }
    const bool early = step < training.steps && services_.stop_after && services_.stop_after(step);
    const bool last = early || step == training.steps;
    if (last || (training.validation_every > 0 && step % training.validation_every == 0))
      validate(step);
    if (saver_.due(step, last, early)) {
      saver_.save(position(step));
      leave_out(step);
    }
    if (last) break;
  }
  saver_.end();
}

void Trainer::train_step(int64_t step) {
  memory_.set_step(step);
  figures_.begin_step(context_);
  balance_.begin_step();
  reducer_.begin_step(context_);
  fsdp_.begin_step();
  pipeline_.train(step, scaler_.scale(), probe_.due(step) ? &probe_.watch() : nullptr, figures_,
                  reducer_);
  balance_.check_records(batches_.per_step());
  reducer_.finish(context_);
  fsdp_.finish(context_);
  if (services_.hooks.after_gradients) services_.hooks.after_gradients(*this, step);
  {
    const PhaseScope phase(context_.device, context_.phase, Phase::optimizer, "optimizer");
    update(step);
    moves_.after_step(step);
  }
  report(step);
  if (services_.hooks.after_step) services_.hooks.after_step(*this, step);
}

void Trainer::update(int64_t step) {
  step_scale_ = scaler_.scale();
  const Tensor &totals = figures_.totals(), &factor = figures_.factor();
  context_.launch(copy(figures_.sums().slice(1, {1}), totals.slice(1, {1})));
  optimizer_.measure(context_, totals, factor, step_scale_);
  // One value over the world, so that all ranks decide the same.
  skipped_ = scaler_.active() && !std::isfinite(host_value(factor.slice(1, {1})));
  scaler_.update(step, skipped_);
  if (!skipped_) {
    optimizer_.update(context_, factor, step, ++updates_);
    reducer_.gather_parameters(context_);
  }
  // Counts did not overflow.
  balance_.update_bias(context_, step);
}

double Trainer::host_value(const Tensor& tensor) {
  double wide = 0;
  float narrow = 0;
  if (!context_.device.properties().numerics)
    return context_.to_host(tensor, nullptr, context_.streams.compute), 0;
  if (tensor.dtype == DType::f64)
    return context_.to_host(tensor, &wide, context_.streams.compute), wide;
  context_.to_host(tensor, &narrow, context_.streams.compute);
  return narrow;
}

void Trainer::report(int64_t step) {
  RankStep out;
  out.rank = rank();
  out.step = step;
  out.start = last_end_;
  out.loss_scale = step_scale_;
  out.skipped = skipped_;
  figures_.read(context_, out);
  out.end = context_.device.now();
  last_end_ = out.end;
  out.memory = memory_.use();
  out.host_syncs = context_.host_syncs;
  context_.host_syncs = 0;
  out.learning_rate = optimizer_.learning_rate(ParameterKind::dense, step);
  out.profile = context_.device.take_profile(services_.recorder &&
                                             services_.recorder->wants_detail(step + 1) &&
                                             shows_ops(scenario_, step + 1, rank()));
  if (probe_.due(step)) {
    probe_.hand_over(context_, balance_, out.layers);
    leave_out(step);
  }
  if (services_.recorder) services_.recorder->add(std::move(out));
}

void Trainer::validate(int64_t step) {
  const Sequences sequences = batches_.validation();
  if (sequences.count == 0) return;
  const PhaseScope phase(context_.device, context_.phase, Phase::other, "validation");
  Tensor sums = memory_.allocate({2}, context_.real(), MemoryClass::workspace, "validation sums");
  context_.launch(fill(sums, {}));
  pipeline_.evaluate(step, sequences, sums);
  double loss[2];
  float narrow[2];
  if (context_.real() == DType::f64) {
    context_.to_host(sums, loss, context_.streams.compute);
  } else {
    context_.to_host(sums, narrow, context_.streams.compute);
    std::copy(narrow, narrow + 2, loss);
  }
  if (services_.recorder)
    services_.recorder->add_validation(rank(), step, loss[0], std::llround(loss[1]));
  leave_out(step);
}

std::vector<Tensor> Trainer::logits(int64_t sequences) {
  RoutingWatch watch;
  watch.keep_logits = true;
  const Tensor sums = memory_.allocate({2}, context_.real(), MemoryClass::workspace, "loss sums");
  context_.launch(fill(sums, {}));
  pipeline_.evaluate(0, batches_.first(sequences), sums, &watch);
  return std::move(watch.logits);
}

void Trainer::leave_out(int64_t step) {
  context_.host_syncs = 0;
  last_end_ = context_.device.now();
  context_.device.take_profile(services_.recorder && services_.recorder->wants_detail(step + 1) &&
                               shows_ops(scenario_, step + 1, rank()));
}

void Trainer::probe(int64_t step) {
  const PhaseScope phase(context_.device, context_.phase, Phase::other, "probe");
  pipeline_.evaluate(step, batches_.first(probe_.sequences()), {}, &probe_.watch(),
                     [&](const MicroBatch& batch) { probe_.read(context_, batch); });
  // Ranks begin the step together: waiting for each other is no part of it.
  if (communicators_.world) communicators_.world->barrier(context_.streams.compute);
  context_.device.synchronize(context_.streams.compute);
  leave_out(step - 1);
}

}  // namespace moetwin
