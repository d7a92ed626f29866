#include "core/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/ops/elementwise.h"

namespace moetwin {

namespace {
Context make_context(Backend& device, Allocator& memory, const TrainingConfig& config) {
  Context c{device, memory, {}, parse_dtype(config.dtype), static_cast<uint64_t>(config.seed)};
  c.streams.compute = device.stream("compute");
  c.streams.dispatch = device.stream("dispatch");
  c.streams.reduction = device.stream("reduction");
  return c;
}

/// Figures per MoE layer: four losses, then one sum of scores per expert.
int64_t layer_figures(const ModelConfig& model) { return 4 + model.moe_layer_config.num_experts; }
constexpr int64_t kFixedFigures = 6;
}  // namespace

Trainer::Trainer(Backend& device, const Scenario& scenario, const Grid& grid,
                 const TrainerServices& services)
    : scenario_(scenario),
      grid_(grid),
      services_(services),
      at_(grid.coordinates(device.properties().rank)),
      nominal_tokens_(scenario.training_config.global_batch_size *
                      scenario.model_config.sequence_length),
      accumulation_(scenario.training_config.global_batch_size /
                    (grid.ddp() * scenario.training_config.micro_batch_size)),
      numerics_(scenario.training_config.numerics == "full"),
      memory_(device, scenario.memory.poison),
      context_(make_context(device, memory_, scenario.training_config)),
      communicators_(make_communicators(device, grid, scenario.model_config.num_moe_layers() > 0)),
      figures_(memory_.allocate({kFixedFigures + scenario.model_config.num_moe_layers() *
                                                     layer_figures(scenario.model_config)},
                                context_.real(), MemoryClass::workspace, "figures of the step")),
      sums_(figures_.slice(0, {2})),
      totals_(figures_.slice(2, {2})),
      factor_(figures_.slice(4, {2})),
      balance_(context_, scenario.model_config, Model::moe_layers(scenario.model_config),
               figures_.slice(kFixedFigures, {figures_.elements() - kFixedFigures}),
               communicators_.balance.get()),
      model_(parameters_,
             LayerSetup{scenario, grid, at_, communicators_, balance_, services.trace,
                        TensorParallel(communicators_.tp.get(),
                                       scenario.distributed_config.sequence_parallel)}),
      groups_(make_flat_groups(context_, parameters_, grid, scenario.distributed_config,
                               scenario.training_config.optimizer == "adamw")),
      reducer_(groups_, communicators_,
               scenario.distributed_config.comm_optimization.gradient_reduction_overlap),
      fsdp_(context_, grid, scenario.distributed_config, groups_),
      optimizer_(scenario.training_config, groups_, communicators_.world.get(),
                 static_cast<double>(nominal_tokens_)),
      scaler_(scenario.training_config.loss_scaling, context_.dtype),
      state_(context_, groups_, reducer_, balance_, scenario.model_config, at_),
      saver_(scenario.checkpoint, context_, state_, services.checkpoints),
      probe_(scenario) {
  context_.units = &fsdp_;
  for (FlatGroup& group : groups_) group.initialise(context_);
  TrainingPosition from;
  if (services_.resume) {
    state_.restore(*services_.resume);
    from = services_.resume->manifest().position;
  }
  if (services_.resume) scaler_.restore(from);
  first_step_ = from.step;
  updates_ = from.updates;
  if (services_.data)
    order_ = std::make_unique<BatchOrder>(context_.seed, services_.data->sequences(Split::train),
                                          scenario.training_config.global_batch_size, from.step,
                                          from.consumed_sequences);
}

TrainingPosition Trainer::position(int64_t step) const {
  TrainingPosition p;
  p.step = step;
  p.updates = updates_;
  scaler_.save(p);
  p.seed = scenario_.training_config.seed;
  p.consumed_sequences = order_ ? order_->consumed(step) : 0;
  p.data_sequences = services_.data ? services_.data->sequences(Split::train) : 0;
  return p;
}

MicroBatch Trainer::micro_batch(int64_t step, int64_t index) const {
  MicroBatch batch;
  batch.step = step;
  batch.index = index;
  batch.sequences = scenario_.training_config.micro_batch_size;
  batch.sequence_length = scenario_.model_config.sequence_length;
  batch.first_sequence = (index * grid_.ddp() + at_.ddp) * batch.sequences;
  batch.gradient_scale = 1.0 / static_cast<double>(nominal_tokens_);
  batch.loss_scale = scaler_.scale();
  batch.valid_tokens = batch.tokens();
  batch.share = static_cast<double>(batch.valid_tokens) / static_cast<double>(nominal_tokens_);
  return batch;
}

Tensor Trainer::load(MicroBatch& batch, Split split,
                     const std::function<int64_t(int64_t)>& sequence_of) {
  const int64_t tokens = batch.tokens(), length = batch.sequence_length;
  Tensor device = memory_.allocate({2, tokens}, DType::i32, MemoryClass::activations, "tokens");
  if (!numerics_ || !services_.data) {
    context_.device.write(device, nullptr, context_.streams.compute);
    return device;
  }
  std::vector<int32_t> host(static_cast<size_t>(2 * tokens)),
      sequence(static_cast<size_t>(length + 1));
  batch.valid_tokens = 0;
  for (int64_t s = 0; s < batch.sequences; ++s) {
    services_.data->read(split, sequence_of(batch.first_sequence + s), sequence.data());
    int32_t* ids = host.data() + s * length;
    int32_t* targets = ids + tokens;
    std::copy(sequence.begin(), sequence.end() - 1, ids);
    std::copy(sequence.begin() + 1, sequence.end(), targets);
    batch.valid_tokens += length - std::count(targets, targets + length, -1);
  }
  batch.share = static_cast<double>(batch.valid_tokens) / static_cast<double>(nominal_tokens_);
  context_.device.write(device, host.data(), context_.streams.compute);
  return device;
}

void Trainer::run() {
  const TrainingConfig& training = scenario_.training_config;
  context_.device.synchronize(context_.streams.compute);
  context_.device.take_profile(services_.recorder && services_.recorder->wants_detail(1));
  last_end_ = context_.device.now();
  for (int64_t step = first_step_ + 1; step <= training.steps; ++step) {
    if (order_ && probe_.due(step)) probe(step);
    train_step(step);
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
  std::vector<LayerStep> layers;
  context_.launch(fill(figures_, {}));
  balance_.begin_step();
  reducer_.begin_step(context_);
  fsdp_.begin_step();
  for (int64_t index = 0; index < accumulation_; ++index) {
    MicroBatch batch = micro_batch(step, index);
    if (probe_.due(step)) batch.watch = &probe_.watch();
    Model::Saved saved;
    Tensor tokens;
    {
      const PhaseScope phase(context_.device, context_.phase, Phase::data, "data");
      tokens = load(batch, Split::train, [&](int64_t i) { return order_->sequence(step, i); });
    }
    {
      const PhaseScope phase(context_.device, context_.phase, Phase::forward, "forward");
      model_.forward(context_, batch, tokens.slice(0, {batch.tokens()}),
                     tokens.slice(batch.tokens(), {batch.tokens()}), sums_, saved);
    }
    collect_counts(saved, layers, batch.tokens());
    const PhaseScope phase(context_.device, context_.phase, Phase::backward, "backward");
    const bool last = index + 1 == accumulation_;
    model_.backward(context_, batch, saved, [&](int64_t block) {
      if (last) reducer_.block_done(context_, block);
    });
  }
  balance_.check_records(accumulation_);
  reducer_.finish(context_);
  fsdp_.finish(context_);
  if (services_.hooks.after_gradients) services_.hooks.after_gradients(*this, step);
  {
    const PhaseScope phase(context_.device, context_.phase, Phase::optimizer, "optimizer");
    update(step);
  }
  report(step, last_end_, std::move(layers));
  if (services_.hooks.after_step) services_.hooks.after_step(*this, step);
}

void Trainer::update(int64_t step) {
  step_scale_ = scaler_.scale();
  context_.launch(copy(sums_.slice(1, {1}), totals_.slice(1, {1})));
  optimizer_.measure(context_, totals_, factor_, step_scale_);
  // One value over the world, so that all ranks decide the same.
  skipped_ = scaler_.active() && !std::isfinite(host_value(factor_.slice(1, {1})));
  scaler_.update(step, skipped_);
  if (!skipped_) {
    optimizer_.update(context_, factor_, step, ++updates_);
    reducer_.gather_parameters(context_);
  }
  // Counts did not overflow.
  balance_.update_bias(context_, step);
}

double Trainer::host_value(const Tensor& tensor) {
  double wide = 0;
  float narrow = 0;
  if (!numerics_) return context_.to_host(tensor, nullptr, context_.streams.compute), 0;
  if (tensor.dtype == DType::f64)
    return context_.to_host(tensor, &wide, context_.streams.compute), wide;
  context_.to_host(tensor, &narrow, context_.streams.compute);
  return narrow;
}

void Trainer::collect_counts(const Model::Saved& saved, std::vector<LayerStep>& layers,
                             int64_t tokens) const {
  // The ranks of a TP group routed the same tokens: the lowest tells of them.
  if (at_.tp != 0) return;
  size_t slot = 0;
  for (size_t i = 0; i < saved.layers.size(); ++i) {
    const DispatchCounts& counts = saved.layers[i].moe.dispatch.counts;
    if (counts.routed.empty()) continue;
    if (layers.size() <= slot) {
      LayerStep fresh;
      fresh.layer = static_cast<int64_t>(i);
      fresh.counts.assign(counts.routed.size(), 0);
      fresh.kept.assign(counts.kept.size(), 0);
      layers.push_back(std::move(fresh));
    }
    LayerStep& layer = layers[slot++];
    layer.tokens += tokens;
    for (size_t e = 0; e < counts.routed.size(); ++e) {
      layer.counts[e] += counts.routed[e];
      layer.kept[e] += counts.kept[e];
    }
  }
}

void Trainer::report(int64_t step, double start, std::vector<LayerStep> layers) {
  RankStep out;
  out.rank = rank();
  out.step = step;
  out.start = start;
  if (numerics_) {
    // fp64 runs read doubles, all others floats.
    const auto n = static_cast<size_t>(figures_.elements());
    std::vector<double> figures(n);
    if (context_.real() == DType::f64) {
      context_.to_host(figures_, figures.data(), context_.streams.compute);
    } else {
      std::vector<float> narrow(n);
      context_.to_host(figures_, narrow.data(), context_.streams.compute);
      std::copy(narrow.begin(), narrow.end(), figures.begin());
    }
    out.ce_sum = figures[0];
    out.valid_tokens = std::llround(figures[1]);
    out.grad_norm = figures[5];
    if ((!skipped_ && !std::isfinite(out.grad_norm)) || !std::isfinite(out.ce_sum))
      throw Error(ErrorClass::non_finite,
                  fmt::format("step {}: the gradient norm is {} and the loss sum of rank {} is {}; "
                              "lower the learning "
                              "rate, or look at the last steps in steps.csv",
                              step, out.grad_norm, out.rank, out.ce_sum));
    const int64_t per_layer = layer_figures(scenario_.model_config);
    for (size_t i = 0; i < layers.size(); ++i) {
      const double* f = figures.data() + kFixedFigures + static_cast<int64_t>(i) * per_layer;
      layers[i].aux = f[0];
      layers[i].z = f[1];
      layers[i].importance = f[2];
      layers[i].load_variance = f[3];
      // A scripted router has no scores.
      if (std::any_of(f + 4, f + per_layer, [](double p) { return p > 0; }))
        layers[i].probability.assign(f + 4, f + per_layer);
    }
  } else {
    context_.to_host(figures_, nullptr, context_.streams.compute);
  }
  out.end = context_.device.now();
  last_end_ = out.end;
  out.memory = memory_.use();
  out.host_syncs = context_.host_syncs;
  context_.host_syncs = 0;
  out.loss_scale = step_scale_;
  out.skipped = skipped_;
  out.learning_rate = optimizer_.learning_rate(ParameterKind::dense, step);
  out.profile = context_.device.take_profile(services_.recorder &&
                                             services_.recorder->wants_detail(step + 1));
  if (probe_.due(step)) {
    probe_.hand_over(context_, balance_, layers);
    leave_out(step);
  }
  out.layers = std::move(layers);
  if (services_.recorder) services_.recorder->add(std::move(out));
}

void Trainer::evaluate(int64_t step, Split split, int64_t wanted,
                       const std::function<int64_t(int64_t)>& sequence_of, const Tensor& sums,
                       const std::function<void(const MicroBatch&)>& probed) {
  // The last forwards have fewer sequences or none: sequences that do not count would take places
  // of experts.
  const int64_t per_round = grid_.ddp() * scenario_.training_config.micro_batch_size;
  for (int64_t round = 0; round * per_round < wanted; ++round) {
    MicroBatch batch = micro_batch(step, round);
    batch.training = batch.backward = false;
    if (probed) batch.watch = &probe_.watch();
    batch.sequences = std::clamp<int64_t>(wanted - batch.first_sequence, 0, batch.sequences);
    const Tensor tokens = load(batch, split, sequence_of);
    Model::Saved saved;
    model_.forward(context_, batch, tokens.slice(0, {batch.tokens()}),
                   tokens.slice(batch.tokens(), {batch.tokens()}), sums, saved);
    if (probed) probed(batch);
  }
}

void Trainer::validate(int64_t step) {
  if (!numerics_ || !services_.data) return;
  const int64_t available = services_.data->sequences(Split::validation);
  const int64_t wanted = std::min(available, scenario_.training_config.validation_sequences);
  if (wanted == 0) return;
  const PhaseScope phase(context_.device, context_.phase, Phase::other, "validation");
  Tensor sums = memory_.allocate({2}, context_.real(), MemoryClass::workspace, "validation sums");
  context_.launch(fill(sums, {}));
  evaluate(
      step, Split::validation, wanted, [](int64_t i) { return i; }, sums, nullptr);
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

void Trainer::leave_out(int64_t step) {
  context_.host_syncs = 0;
  last_end_ = context_.device.now();
  context_.device.take_profile(services_.recorder && services_.recorder->wants_detail(step + 1));
}

void Trainer::probe(int64_t step) {
  const PhaseScope phase(context_.device, context_.phase, Phase::other, "probe");
  // The sequences of step 1 of a training from its start, whatever this one goes on from.
  const BatchOrder order(context_.seed, services_.data->sequences(Split::train),
                         scenario_.training_config.global_batch_size);
  evaluate(
      step, Split::train, probe_.sequences(), [&](int64_t i) { return order.sequence(1, i); }, {},
      [&](const MicroBatch& batch) { probe_.read(context_, batch); });
  // Ranks begin the step together: waiting for each other is no part of it.
  if (communicators_.world) communicators_.world->barrier(context_.streams.compute);
  context_.device.synchronize(context_.streams.compute);
  leave_out(step - 1);
}

}  // namespace moetwin
