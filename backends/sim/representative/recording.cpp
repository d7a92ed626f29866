#include "backends/sim/representative/recording.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/parallel/flat_parameters.h"
#include "core/train/batches.h"
#include "core/train/model.h"
#include "core/train/step_figures.h"

namespace moetwin {

int64_t total(const ClassBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

void MemoryChange::then(const MemoryChange& next) {
  if (total(after) + total(next.peak) > total(peak))
    for (size_t c = 0; c < after.size(); ++c) peak[c] = after[c] + next.peak[c];
  for (size_t c = 0; c < after.size(); ++c) after[c] += next.after[c];
}

namespace {

/// A pass as one rank did it.
struct RankPass {
  std::vector<SoloBackend::Piece> pieces;
  MemoryChange memory;
};
struct RankBlock {
  RankPass forward, backward, weights;
};
struct RankRecord {
  RankPass data;
  std::map<int64_t, RankBlock> blocks;
};

/// Cuts the rank's list at the borders of blocks.
class Cuts : public UnitHooks {
 public:
  Cuts(SoloBackend& device, Allocator& memory) : device_(device), memory_(memory) {}

  void before_forward(Context&, int64_t block) override {
    // An embedding whose table the head needs again has no end of its own.
    if (open_) end(record_.blocks[open_block_].forward);
    begin(block);
  }
  void before_experts(Context&, int64_t) override { cut(); }
  void after_forward(Context&, int64_t block, bool) override { end(record_.blocks[block].forward); }
  void before_backward(Context&, int64_t block, bool) override { begin(block); }
  void after_backward_input(Context&, int64_t block) override {
    end(record_.blocks[block].backward);
  }
  void after_backward(Context&, int64_t block) override { end(record_.blocks[block].backward); }

  /// What lies between blocks belongs to the one behind it.
  void begin(int64_t block) {
    open_block_ = block;
    if (open_) return;
    open_ = true;
    before_ = memory_.use().bytes;
    memory_.reset_peak();
  }
  void end(RankPass& pass) {
    if (!open_) return;
    open_ = false;
    cut();
    pass.pieces = std::move(pieces_);
    pieces_.clear();
    const MemoryUse& use = memory_.use();
    for (size_t c = 0; c < before_.size(); ++c) {
      pass.memory.after[c] = use.bytes[c] - before_[c];
      pass.memory.peak[c] = use.bytes_at_peak[c] - before_[c];
    }
    last_ = &pass;
    left_ = use.bytes;
  }
  /// What is let go after the last block's end is still that block's doing.
  void let_go() {
    if (!last_) return;
    for (size_t c = 0; c < left_.size(); ++c)
      last_->memory.after[c] += memory_.use().bytes[c] - left_[c];
    last_ = nullptr;
  }
  RankRecord& record() { return record_; }

 private:
  void cut() { pieces_.push_back(device_.cut()); }

  SoloBackend& device_;
  Allocator& memory_;
  RankRecord record_;
  std::vector<SoloBackend::Piece> pieces_;
  bool open_ = false;
  int64_t open_block_ = 0;
  ClassBytes before_{}, left_{};
  RankPass* last_ = nullptr;
};

/// The pass that the ranks do together.
Pass together(const std::vector<const RankPass*>& ranks) {
  const RankPass& first = *ranks.front();
  Pass pass;
  pass.memory = first.memory;
  std::vector<ItemList> whole(ranks.size());
  std::vector<const ItemList*> lists(ranks.size());
  for (size_t p = 0; p < first.pieces.size(); ++p) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      const ItemList& items = ranks[r]->pieces.at(p).items;
      lists[r] = &items;
      const auto records =
          static_cast<int32_t>(std::count_if(whole[r].begin(), whole[r].end(), [](const Item& i) {
            return i.kind == Item::Kind::record;
          }));
      for (Item item : items) {
        if (item.kind == Item::Kind::wait) item.event += records;
        whole[r].push_back(item);
      }
    }
    pass.pieces.push_back(make_segment(lists));
    pass.pieces.back().sent = first.pieces[p].sent;
  }
  for (size_t r = 0; r < ranks.size(); ++r) lists[r] = &whole[r];
  pass.whole = make_segment(lists);
  for (const SoloBackend::Piece& piece : first.pieces)
    for (const Sent& s : piece.sent) add_sent(pass.whole.sent, s);
  return pass;
}

/// Parameters whole on every rank: what sharding adds is no layer's doing.
DistributedConfig unsharded(const DistributedConfig& config) {
  DistributedConfig whole = config;
  whole.zero_stage = 0;
  whole.fsdp.sharding_strategy = "auto";
  return whole;
}

}  // namespace

namespace {
/// Which micro-batch of a step: guests that stay for the step come with the first one and leave
/// with the last.
enum class Which : uint8_t { only, middle };

RankRecord record_rank(const RecordingSetup& setup, int64_t rank, int64_t step, LayerRange range,
                       bool first, bool last, const LayerLoads* loads, Which which) {
  Scenario scenario = setup.scenario;
  const int64_t micro_batches = which == Which::middle ? 3 : 1;
  if (loads && loads->guests_stay())
    scenario.training_config.global_batch_size =
        micro_batches * setup.grid.batch_ranks() * scenario.training_config.micro_batch_size;
  const ModelConfig& model = scenario.model_config;
  SoloBackend device(setup.prices, setup.settings, rank, loads);
  Allocator memory(device, false);
  Context context{device,
                  memory,
                  {},
                  parse_dtype(scenario.training_config.dtype),
                  static_cast<uint64_t>(scenario.training_config.seed)};
  context.streams.compute = device.stream("compute");
  context.streams.dispatch = device.stream("dispatch");
  context.streams.reduction = device.stream("reduction");
  const Coordinates at = setup.grid.coordinates(rank);
  const Communicators communicators = make_communicators(device, setup.grid, scenario);
  const std::vector<int64_t> moe = moe_layers(model, {range});
  StepFigures figures(context, moe, model.moe_layer_config.num_experts, false, false);
  BalanceState balance(context, model, moe, figures.balance(), communicators.balance.get());
  ParameterSet parameters;
  const TensorParallel tp(communicators.tp.get(), scenario.distributed_config.sequence_parallel);
  ModelChunk chunk(parameters,
                   LayerSetup{scenario, setup.grid, at, communicators, balance, setup.trace, tp,
                              loads ? loads->expert_plan() : nullptr},
                   range, first, last);
  const DistributedConfig whole = unsharded(scenario.distributed_config);
  std::vector<FlatGroup> groups = make_flat_groups(context, parameters, setup.grid, whole, false);
  const Batches batches(scenario, setup.grid, at.ddp, nullptr);
  MicroBatch batch = batches.training(step, which == Which::middle ? 1 : 0);
  const int64_t tokens =
      batch.tokens() / (tp.sequence() ? scenario.distributed_config.tensor_parallel_size : 1);
  const auto hidden = [&](const char* name) {
    return context.activation({tokens, model.hidden_size}, name);
  };

  Cuts cuts(device, memory);
  const auto in_phase = [&](Phase phase, const auto& work) {
    const PhaseScope scope(device, context.phase, phase, "");
    work();
  };
  ModelChunk::Saved saved;
  std::vector<OpCall> later;
  Tensor out;
  if (which == Which::middle) {  // one before it, which nobody looks at
    ChunkInput input;
    input.hidden = hidden("stage activations");
    out = chunk.forward(context, batches.training(step, 0), input, figures.sums(), saved);
    out = chunk.backward(context, batches.training(step, 0), hidden("stage gradients"), saved,
                         [](int64_t) {});
    saved = {};
    out = {};
  }
  {
    ChunkInput input;
    if (!first) input.hidden = hidden("stage activations");
    device.cut();
    in_phase(Phase::data, [&] {
      cuts.begin(0);
      const Batches::Tokens loaded = batches.load(context, batch, nullptr, first, last);
      input.ids = loaded.ids;
      input.targets = loaded.targets;
      cuts.end(cuts.record().data);
    });
    context.units = &cuts;
    in_phase(Phase::forward,
             [&] { out = chunk.forward(context, batch, input, figures.sums(), saved); });
  }
  cuts.let_go();
  out = {};
  Tensor dy;
  if (!last) dy = hidden("stage gradients");
  in_phase(Phase::backward, [&] {
    if (setup.split) context.later = &later;
    out = chunk.backward(context, batch, std::move(dy), saved, [](int64_t) {});
    context.later = nullptr;
  });
  saved = {};
  cuts.let_go();
  if (setup.split) {
    in_phase(Phase::backward, [&] {
      // Of whichever block: a chunk is recorded with one layer or none.
      const int64_t block = range.count > 0 ? range.first + 1 : last ? range.end() + 1 : int64_t{0};
      cuts.begin(block);
      for (const OpCall& call : later) context.launch(call);
      later.clear();
      cuts.end(cuts.record().blocks[block].weights);
    });
    cuts.let_go();
  }
  context.units = nullptr;
  return std::move(cuts.record());
}

}  // namespace

namespace {
ChunkRecord record_together(const RecordingSetup& setup, const std::vector<RecordedRank>& ranks,
                            int64_t step, LayerRange range, bool first, bool last, Which which) {
  std::vector<RankRecord> records;
  for (const RecordedRank& r : ranks)
    records.push_back(record_rank(setup, r.rank, step, range, first, last, r.loads, which));
  const auto all = [&](const auto& pass_of) {
    std::vector<const RankPass*> passes;
    for (RankRecord& record : records) passes.push_back(&pass_of(record));
    return passes.front()->pieces.empty() ? Pass{} : together(passes);
  };
  ChunkRecord chunk;
  chunk.data = all([](RankRecord& r) -> RankPass& { return r.data; });
  for (const auto& [block, of_first] : records.front().blocks) {
    BlockPasses& passes = chunk.blocks[block];
    passes.forward = all([&](RankRecord& r) -> RankPass& { return r.blocks[block].forward; });
    passes.backward = all([&](RankRecord& r) -> RankPass& { return r.blocks[block].backward; });
    passes.weights = all([&](RankRecord& r) -> RankPass& { return r.blocks[block].weights; });
  }
  return chunk;
}
}  // namespace

ChunkRecord record_chunk(const RecordingSetup& setup, const std::vector<RecordedRank>& ranks,
                         int64_t step, LayerRange range, bool first, bool last) {
  ChunkRecord only = record_together(setup, ranks, step, range, first, last, Which::only);
  const TrainingConfig& training = setup.scenario.training_config;
  const LayerLoads* loads = ranks.front().loads;
  if (!loads || !loads->guests_stay() ||
      training.global_batch_size == setup.grid.batch_ranks() * training.micro_batch_size)
    return only;
  // Time of a micro-batch in between, which guests neither come with nor leave with; memory with
  // them.
  ChunkRecord middle = record_together(setup, ranks, step, range, first, last, Which::middle);
  for (auto& [block, passes] : middle.blocks) {
    const BlockPasses& with = only.blocks.at(block);
    const auto take = [&](Pass& pass, const Pass& other) {
      pass.memory = other.memory;
      for (size_t p = 0; p < middle.once.seconds.size(); ++p)
        middle.once.seconds[p] += other.whole.parts.seconds[p] - pass.whole.parts.seconds[p];
    };
    take(passes.forward, with.forward);
    take(passes.backward, with.backward);
  }
  return middle;
}

}  // namespace moetwin
