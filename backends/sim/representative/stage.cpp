#include "backends/sim/representative/stage.h"

#include "core/ops/elementwise.h"
#include "core/parallel/gradient_reducer.h"
#include "core/train/batches.h"
#include "core/train/loss_scaler.h"
#include "core/train/model.h"
#include "core/train/optimizer.h"
#include "core/train/step_figures.h"

namespace moetwin {

struct StageProgram::Inside {
  const Scenario& scenario;
  SoloBackend device;
  Allocator memory;
  Context context;
  Communicators communicators;
  std::vector<int64_t> moe;
  StepFigures figures;
  BalanceState balance;
  ParameterSet parameters;
  Model model;
  std::vector<FlatGroup> groups;
  GradientReducer reducer;
  Fsdp fsdp;
  Optimizer optimizer;
  LossScaler scaler;
  bool gathers = false;

  static Context make_context(Backend& device, Allocator& memory, const TrainingConfig& config) {
    Context c{device, memory, {}, parse_dtype(config.dtype), static_cast<uint64_t>(config.seed)};
    c.streams.compute = device.stream("compute");
    c.streams.dispatch = device.stream("dispatch");
    c.streams.reduction = device.stream("reduction");
    return c;
  }

  Inside(const RecordingSetup& setup, int64_t rank)
      : scenario(setup.scenario),
        device(setup.prices, setup.settings, rank),
        memory(device, false),
        context(make_context(device, memory, scenario.training_config)),
        communicators(make_communicators(device, setup.grid, scenario)),
        moe(moe_layers(scenario.model_config,
                       rank_layers(scenario.model_config, scenario.distributed_config,
                                   setup.grid.coordinates(rank).pp))),
        figures(context, moe, scenario.model_config.moe_layer_config.num_experts, false, false),
        balance(context, scenario.model_config, moe, figures.balance(),
                communicators.balance.get()),
        model(parameters,
              LayerSetup{scenario, setup.grid, setup.grid.coordinates(rank), communicators, balance,
                         setup.trace,
                         TensorParallel(communicators.tp.get(),
                                        scenario.distributed_config.sequence_parallel)}),
        groups(make_flat_groups(context, parameters, setup.grid, scenario.distributed_config,
                                scenario.training_config.optimizer == "adamw")),
        reducer(groups, communicators,
                scenario.distributed_config.comm_optimization.gradient_reduction_overlap),
        fsdp(context, setup.grid, scenario.distributed_config, groups),
        optimizer(scenario.training_config, groups, communicators.world.get(),
                  static_cast<double>(scenario.training_config.global_batch_size *
                                      scenario.model_config.sequence_length)),
        scaler(scenario.training_config.loss_scaling, context.dtype) {
    for (const FlatGroup& group : groups) {
      if (!group.shards_everything()) continue;
      gathers = true;
      // Initial weights are drawn whole, bucket by bucket.
      for (const FlatBucket& bucket : group.buckets())
        memory.allocate({bucket.count}, context.real(), MemoryClass::workspace, "initial weights");
    }
    context.units = &fsdp;
  }
};

StageProgram::StageProgram(const RecordingSetup& setup, int64_t rank)
    : inside_(std::make_unique<Inside>(setup, rank)) {}
StageProgram::~StageProgram() = default;

SoloBackend& StageProgram::device() { return inside_->device; }
Context& StageProgram::context() { return inside_->context; }
const MemoryUse& StageProgram::memory() const { return inside_->memory.use(); }
bool StageProgram::gathers() const { return inside_->gathers; }

// As Trainer does it.
void StageProgram::begin() {
  inside_->figures.begin_step(inside_->context);
  inside_->balance.begin_step();
  inside_->reducer.begin_step(inside_->context);
  inside_->fsdp.begin_step();
}

void StageProgram::block_done(int64_t block) {
  inside_->reducer.block_done(inside_->context, block);
}

void StageProgram::finish() {
  inside_->reducer.finish(inside_->context);
  inside_->fsdp.finish(inside_->context);
}

void StageProgram::measure() {
  Context& context = inside_->context;
  const PhaseScope phase(context.device, context.phase, Phase::optimizer, "optimizer");
  const Tensor &totals = inside_->figures.totals(), &factor = inside_->figures.factor();
  context.launch(copy(inside_->figures.sums().slice(1, {1}), totals.slice(1, {1})));
  inside_->optimizer.measure(context, totals, factor, inside_->scaler.scale());
}

void StageProgram::update() {
  Context& context = inside_->context;
  const PhaseScope phase(context.device, context.phase, Phase::optimizer, "optimizer");
  const Tensor& factor = inside_->figures.factor();
  if (inside_->scaler.active())
    context.to_host(factor.slice(1, {1}), nullptr, context.streams.compute);
  inside_->optimizer.update(context, factor, 1, 1);
  inside_->reducer.gather_parameters(context);
  inside_->balance.update_bias(context, 1);
}

void StageProgram::report() {
  Context& context = inside_->context;
  context.to_host(inside_->figures.all(), nullptr, context.streams.compute);
}

StageRecord record_stage(StageProgram& program, const std::vector<int64_t>& blocks) {
  StageRecord record;
  const auto piece = [&] {
    const SoloBackend::Piece cut = program.device().cut();
    Segment segment = make_segment(cut.items);
    segment.sent = cut.sent;
    return segment;
  };
  record.memory = program.memory().bytes;
  record.host_bytes = program.memory().host;
  record.communicator_bytes = program.device().properties().communicator_bytes;
  program.device().cut();
  program.begin();
  record.begin = piece();
  for (int64_t block : blocks) {
    program.block_done(block);
    SoloBackend::Piece cut = program.device().cut();
    if (cut.items.empty()) continue;
    Segment& segment = record.block_done[block] = make_segment(cut.items);
    segment.sent = std::move(cut.sent);
  }
  program.finish();
  record.finish = piece();
  program.measure();
  record.measure = piece();
  program.update();
  record.update = piece();
  program.report();
  record.report = piece();
  record.peak = program.memory().bytes_at_peak;
  record.memory = program.memory().bytes;
  return record;
}

}  // namespace moetwin
