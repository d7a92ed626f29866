#include "backends/sim/representative/estimate.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <unordered_map>

#include "backends/sim/cost/framework.h"
#include "backends/sim/cost/roofline.h"
#include "backends/sim/representative/compose.h"
#include "backends/sim/representative/gathers_beside.h"
#include "backends/sim/representative/layer_records.h"
#include "backends/sim/representative/recording.h"
#include "backends/sim/representative/recording_keys.h"
#include "backends/sim/representative/stage.h"
#include "core/base/error.h"
#include "core/ops/isa.h"
#include "core/scenario/model_size.h"
#include "core/scenario/sharding.h"
#include "core/scenario/sizes.h"

namespace moetwin {

namespace {

/// What a choice of algorithms and protocols is made of.
std::string choice_text(const Scenario& scenario) {
  std::string text = scenario.cluster.collective_algorithm;
  const TokenCopies copies = copies_of_tokens(scenario);
  for (const int64_t n : {copies.copies, copies.groups, copies.kept_groups}) append(text, n);
  for (const auto& [name, value] : scenario.nccl) text += "\n" + name + "=" + value;
  return text + "\n";
}

/// What a rank of the stage sends in a step, of which `result` is composed.
std::vector<Sent> traffic_of(const ComposeSetup& step, size_t index, const StageResult& result) {
  const StageSetup& stage = step.stages[index];
  const auto batches = static_cast<double>(step.micro_batches);
  std::vector<Sent> all = result.sent;
  const auto add = [&](const Segment& segment, double times) {
    for (const Sent& sent : segment.sent) add_sent(all, sent, times);
  };
  for (const ChunkPasses* chunk : stage.chunks)
    for (const PlacedBlock& b : chunk->blocks)
      for (const Pass* pass : {&b.passes->forward, &b.passes->backward, &b.passes->weights})
        add(pass->whole, batches);
  if (stage.record) {
    const StageRecord& record = *stage.record;
    for (const Segment* segment :
         {&record.begin, &record.finish, &record.measure, &record.update, &record.report})
      add(*segment, 1);
    for (const auto& [block, segment] : record.block_done) add(segment, 1);
  }
  const auto stages = static_cast<int64_t>(step.stages.size());
  for (int64_t c = 0; stages > 1 && c < step.virtual_chunks; ++c) {
    const int64_t v = c * stages + static_cast<int64_t>(index);
    const auto bytes = static_cast<double>(step.sent_bytes);
    const auto pass_on = [&](const char* purpose, const char* group, size_t edge) {
      add_sent(all,
               {"send", purpose, step.send_way, group, 2, bytes, step.off_node[edge] ? bytes : 0, 1,
                step.forward_seconds[edge]},
               batches);
    };
    if (v + 1 < stages * step.virtual_chunks) pass_on("stage activations", "pp_forward", index);
    if (v > 0)
      pass_on("stage gradients", "pp_backward",
              (index + step.stages.size() - 1) % step.stages.size());
  }
  return all;
}

}  // namespace

struct Estimator::Inside {
  ClusterProfile profile;
  References references;
  std::vector<Field> layer_fields, stage_fields;
  struct World {
    Machine machine;
    std::map<std::string, std::unique_ptr<CollectivePrices>> prices;  ///< by choice
    World(const ClusterProfile& profile, int64_t world) : machine(profile, world) {}
  };
  std::map<int64_t, std::unique_ptr<World>> worlds;
  RecordingKeys keys;
  LayerRecords layers;
  std::unordered_map<std::string, StageRecord> stages;

  Inside(ClusterProfile p, References r)
      : profile(std::move(p)), references(std::move(r)), layers(profile.gpu, references) {
    const auto refuse = [&](const char* what) {
      throw Error(ErrorClass::configuration,
                  "cluster.profile \"" + profile.name + "\" has " + what +
                      ", which cluster.fidelity representative does not know; legal: fluid, flow");
    };
    if (!profile.faults.empty()) refuse("faults");
    if (profile.fabric.kind == FabricKind::platform) refuse("a platform file as its fabric");
  }

  CollectivePrices& prices(const Scenario& scenario) {
    auto& world = worlds[scenario.distributed_config.world_size];
    if (!world) world = std::make_unique<World>(profile, scenario.distributed_config.world_size);
    auto& prices = world->prices[choice_text(scenario)];
    if (!prices)
      prices = std::make_unique<CollectivePrices>(
          world->machine, nccl_choice(scenario.cluster.collective_algorithm, scenario.nccl,
                                      copies_of_tokens(scenario)));
    return *prices;
  }
};

Estimator::Estimator(ClusterProfile profile, References references)
    : inside_(std::make_unique<Inside>(std::move(profile), std::move(references))) {}
Estimator::~Estimator() = default;

Estimate Estimator::estimate(const Scenario& scenario, const EstimateOptions& options) {
  Inside& in = *inside_;
  const ModelConfig& model = scenario.model_config;
  const TrainingConfig& training = scenario.training_config;
  const DistributedConfig& distributed = scenario.distributed_config;
  const Grid grid(distributed, model.moe_layer_config.num_experts, model.expert_width());
  CollectivePrices& prices = in.prices(scenario);
  const std::string choice = choice_text(scenario), stage_key = in.keys.stage(scenario) + choice;
  in.layers.begin(scenario, grid, choice, in.keys);
  RecordingSetup setup{scenario, grid, prices, {}, nullptr, false};
  setup.settings.compute_dtype = parse_dtype(training.dtype);
  setup.settings.kernels = parse_kernels(scenario.cluster.kernels, scenario.cluster.attention);
  setup.settings.tensor_parallel = tensor_parallel_beside(scenario);
  setup.settings.copies_gathered = gathered_are_copied(scenario);
  setup.settings.blocking_wait = scenario.cluster.blocking_wait;
  setup.settings.kernels.attention_dropout = scenario.model_config.dropout > 0;
  setup.settings.kernels.fp8_products = scenario.cluster.fp8_products;
  setup.settings.references = in.references;
  setup.split = grid.pp() > 1 && distributed.pipeline_schedule == "zb_h1";
  setup.trace = in.layers.trace();

  const int64_t p = grid.pp(), ranks = grid.world() / p, v = distributed.virtual_pipeline_size;
  ComposeSetup step;
  step.schedule = distributed.pipeline_schedule;
  step.micro_batches =
      training.global_batch_size / (grid.batch_ranks() * training.micro_batch_size);
  step.virtual_chunks = v;
  step.launch_seconds = in.profile.gpu.launch_overhead_seconds.value;
  step.passes_wait = framework_costs(setup.settings.kernels.of).passes_wait;
  step.pass_seconds = scenario.cluster.stage_pass_seconds;
  const int64_t tokens = training.micro_batch_size * local_sequence_length(scenario) /
                         (distributed.sequence_parallel ? grid.tp() : 1);
  step.hidden_bytes = tokens * model.hidden_size * dtype_size(parse_dtype(training.dtype));
  const int64_t parts =
      framework_costs(setup.settings.kernels.of).scatters_hidden && !distributed.sequence_parallel
          ? grid.tp()
          : 1;
  step.sent_bytes = step.hidden_bytes / parts;
  for (int64_t s = 0; p > 1 && s < p; ++s) {
    const int64_t next = (s + 1) % p, low = std::min(s, next), high = std::max(s, next);
    const Group pair{low * ranks, 1, 0, 2, (high - low) * ranks};
    const double bytes = static_cast<double>(step.sent_bytes);
    const CollectivePrice price =
        prices.price(CollectiveKind::send, pair, "pp_forward", bytes, bytes);
    double gather = 0;
    if (parts > 1) {
      const double whole = static_cast<double>(step.hidden_bytes);
      gather = prices
                   .price(CollectiveKind::all_gather, grid.group(GroupKind::tp, next * ranks), "tp",
                          whole, whole - bytes)
                   .seconds;
    }
    step.forward_seconds.push_back(price.seconds + gather);
    step.backward_seconds.push_back(price.seconds + gather);
    step.stage_ports = price.ports;
    step.send_way = price.way;
    step.off_node.push_back(price.sent_off_node > 0);
  }

  const bool gathers =
      sharding_of(distributed).shard == Shard::everything && grid.ddp() * grid.edp() > 1;
  Estimate estimate;
  int64_t routed = 0, dropped = 0;
  const std::vector<LayerRange> ranges = stage_layers(model, distributed);
  std::deque<ChunkPasses> chunks;
  std::vector<StepParts> once(static_cast<size_t>(p));
  std::vector<std::unique_ptr<StageProgram>> programs;
  for (int64_t s = 0; s < p; ++s) {
    const int64_t rank = s * ranks;
    setup.settings.slowness = 1;
    for (const auto& [slow, factor] : in.profile.slow_ranks)
      if (slow / ranks == s) setup.settings.slowness = std::max(setup.settings.slowness, factor);
    StageSetup stage;
    std::vector<int64_t> blocks;
    for (int64_t c = 0; c < v; ++c) {
      const int64_t stage_number = c * p + s;
      const LayerRange range = ranges[static_cast<size_t>(stage_number)];
      const bool first = stage_number == 0, last = stage_number + 1 == p * v;
      ChunkPasses chunk;
      chunk.tied = first && last && model.tie_embeddings;
      const ChunkRecord* ends = nullptr;
      if (first || last) {
        ends = &in.layers.ends(setup, rank, options.step, first, last);
        chunk.data = &ends->data;
      }
      if (first) chunk.blocks.push_back({0, &ends->blocks.at(0)});
      for (int64_t layer = range.first; layer < range.end(); ++layer) {
        const LayerKind kind = in.layers.layer(setup, rank, options.step, layer);
        routed += kind.routed;
        dropped += kind.dropped;
        chunk.blocks.push_back({layer + 1, kind.passes});
        once[static_cast<size_t>(s)] += kind.once;
      }
      if (last)
        chunk.blocks.push_back({model.num_layers + 1, &ends->blocks.at(model.num_layers + 1)});
      for (size_t i = chunk.blocks.size(); i-- > 0;) blocks.push_back(chunk.blocks[i].block);
      const auto same = std::find_if(chunks.begin(), chunks.end(), [&](const ChunkPasses& other) {
        return other.data == chunk.data &&
               std::equal(other.blocks.begin(), other.blocks.end(), chunk.blocks.begin(),
                          chunk.blocks.end(), [](const PlacedBlock& a, const PlacedBlock& b) {
                            return a.block == b.block && a.passes == b.passes;
                          });
      });
      if (same != chunks.end()) {
        stage.chunks.push_back(&*same);
      } else {
        if (!gathers) chunk.multiply();
        chunks.push_back(std::move(chunk));
        stage.chunks.push_back(&chunks.back());
      }
    }
    std::sort(blocks.rbegin(), blocks.rend());
    stage.tied = model.tie_embeddings && p > 1 && (s == 0 || s + 1 == p);
    if (gathers) {
      programs.push_back(std::make_unique<StageProgram>(setup, rank));
      stage.program = programs.back().get();
      stage.program->device().cut();
      stage.program->device().keep_list(false);
    } else {
      std::string key = stage_key;
      append(key, s);
      append(key, setup.settings.slowness);
      const auto found = in.stages.find(key);
      if (found != in.stages.end()) {
        stage.record = &found->second;
      } else {
        StageProgram program(setup, rank);
        stage.record = &in.stages.emplace(key, record_stage(program, blocks)).first->second;
      }
    }
    step.stages.push_back(std::move(stage));
  }
  if (routed > 0)
    estimate.dropped_share = static_cast<double>(dropped) / static_cast<double>(routed);

  const StepResult result = compose(step, options.every_micro_batch);

  // Guests that stay for the step come and go once, on every stage for itself.
  double longest = 0;
  for (const StepParts& of_stage : once) longest = std::max(longest, of_stage.total());
  const double gained =
      gathers_beside_forward(scenario) ? gained_beside_forward(step, in.profile.gpu) : 0;
  estimate.step_seconds = result.seconds + longest - gained;
  const double sequences = static_cast<double>(training.global_batch_size);
  estimate.samples_per_second = sequences / estimate.step_seconds;
  estimate.tokens_per_second =
      estimate.samples_per_second * static_cast<double>(model.sequence_length);
  estimate.mfu = training_flop_per_step(scenario) /
                 (estimate.step_seconds * static_cast<double>(grid.world()) *
                  peak(in.profile.gpu, KernelKind::gemm, setup.settings.compute_dtype).value);
  estimate.memory_bytes = static_cast<int64_t>(in.profile.gpu.memory.value);
  estimate.context_bytes = static_cast<int64_t>(in.profile.gpu.context.value) +
                           framework_costs(setup.settings.kernels.of).memory_bytes;
  for (size_t s = 0; s < result.stages.size(); ++s) {
    StageResult stage = result.stages[s];
    stage.parts += once[s];
    stage.parts[Part::bubble] += longest - once[s].total();
    stage.parts[Part::other_communication] -= gained;
    const StageSetup& made = step.stages[s];
    const int64_t communicators = made.record
                                      ? made.record->communicator_bytes
                                      : made.program->device().properties().communicator_bytes;
    estimate.stages.push_back({stage.parts,
                               stage.peak_bytes,
                               stage.classes,
                               stage.lasting,
                               stage.kept_bytes,
                               stage.host_syncs,
                               communicators,
                               {}});
    const int64_t device_bytes = stage.peak_bytes + communicators + estimate.context_bytes;
    if (device_bytes > estimate.device_bytes) {
      estimate.device_bytes = device_bytes;
      estimate.lasting_bytes =
          std::accumulate(stage.lasting.begin(), stage.lasting.end(), int64_t{0});
    }
    if (options.traffic) estimate.stages.back().sent = traffic_of(step, s, stage);
    estimate.parts += stage.parts;
    estimate.peak_bytes = std::max(estimate.peak_bytes, stage.peak_bytes);
    estimate.host_syncs = std::max(estimate.host_syncs, stage.host_syncs);
  }
  estimate.parts = estimate.parts / static_cast<double>(p);
  estimate.fits = estimate.device_bytes <= estimate.memory_bytes;
  return estimate;
}

Estimate estimate(const Scenario& scenario, const ClusterProfile& profile) {
  const Isa isa = best_isa();
  return Estimator(profile, [isa](const Op& op) { return reference_of(op, isa); })
      .estimate(scenario);
}

}  // namespace moetwin
