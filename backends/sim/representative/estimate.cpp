#include "backends/sim/representative/estimate.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <variant>

#include "backends/sim/cost/framework.h"
#include "backends/sim/cost/roofline.h"
#include "backends/sim/representative/compose.h"
#include "backends/sim/representative/loads.h"
#include "backends/sim/representative/recording.h"
#include "backends/sim/representative/stage.h"
#include "core/base/error.h"
#include "core/ops/isa.h"
#include "core/scenario/keys.h"
#include "core/scenario/model_size.h"
#include "core/scenario/sharding.h"

namespace moetwin {

namespace {

bool starts_with_any(const std::string& path, std::initializer_list<const char*> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const char* p) { return path.rfind(p, 0) == 0; });
}

/// What no recording depends on, or depends on only through sizes that are put into its key.
bool never_matters(const std::string& path) {
  return starts_with_any(path, {"description",
                                "data.",
                                "checkpoint.",
                                "output.",
                                "profile.",
                                "memory.",
                                "nccl",
                                "routing.probe",
                                "routing.trace_file",
                                "cluster.profile",
                                "cluster.nodes",
                                "cluster.fidelity",
                                "cluster.price",
                                "cluster.currency",
                                "training_config.steps",
                                "training_config.seed",
                                "training_config.validation",
                                "training_config.warmup",
                                "training_config.learning_rate",
                                "training_config.schedule",
                                "training_config.router",
                                "training_config.expert",
                                "training_config.dense",
                                "training_config.embedding",
                                "training_config.global_batch_size",
                                "distributed_config.master",
                                "distributed_config.timeout",
                                "distributed_config.check"});
}
bool matters_to_layers(const std::string& path) {
  if (path == "distributed_config.tensor_parallel_size" ||
      path == "distributed_config.sequence_parallel" ||
      path == "distributed_config.expert_parallel_size" ||
      path == "distributed_config.expert_tensor_parallel_size" ||
      path == "distributed_config.parallel_folding")
    return true;
  return !starts_with_any(path, {"distributed_config.", "model_config.num_layers"}) ||
         path.rfind("distributed_config.comm_optimization.all_to_all", 0) == 0;
}
bool matters_to_stages(const std::string& path) {
  return !starts_with_any(
      path, {"training_config.micro_batch_size", "training_config.recompute", "routing.workload",
             "routing.source", "distributed_config.pipeline_schedule",
             "distributed_config.comm_optimization.all_to_all"});
}

struct AppendBytes {
  Scenario& scenario;
  std::string& to;
  template <class T>
  void raw(const T& value) const {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(const std::string& value) const {
    raw(value.size());
    to += value;
  }
  void operator()(const Member<int64_t>& m) const { raw(m(scenario)); }
  void operator()(const Member<double>& m) const { raw(m(scenario)); }
  void operator()(const Member<bool>& m) const { raw(m(scenario)); }
  void operator()(const Member<std::string>& m) const { text(m(scenario)); }
  void operator()(const Member<std::optional<double>>& m) const {
    raw(m(scenario).has_value());
    raw(m(scenario).value_or(0));
  }
  void operator()(const Member<std::vector<int64_t>>& m) const {
    raw(m(scenario).size());
    for (int64_t v : m(scenario)) raw(v);
  }
  void operator()(const Member<std::vector<std::string>>& m) const {
    raw(m(scenario).size());
    for (const std::string& v : m(scenario)) text(v);
  }
  void operator()(const Member<Texts>& m) const {
    for (const auto& [name, value] : m(scenario)) text(name), text(value);
  }
};

template <class T>
void append(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// What a choice of algorithms and protocols is made of.
std::string choice_text(const Scenario& scenario) {
  std::string text = scenario.cluster.collective_algorithm;
  for (const auto& [name, value] : scenario.nccl) text += "\n" + name + "=" + value;
  return text + "\n";
}

/// What a rank of the stage sends in a step of `micro_batches`.
std::vector<Sent> traffic_of(const ComposeSetup& step, size_t index, int64_t micro_batches) {
  const StageSetup& stage = step.stages[index];
  const auto batches = static_cast<double>(micro_batches);
  std::vector<Sent> all;
  const auto add = [&](const Segment& segment, double times) {
    for (const Sent& sent : segment.sent) add_sent(all, sent, times);
  };
  for (const ChunkPasses* chunk : stage.chunks)
    for (const PlacedBlock& b : chunk->blocks)
      for (const Pass* pass : {&b.passes->forward, &b.passes->backward, &b.passes->weights})
        add(pass->whole, batches);
  if (stage.program) {
    // Gathers and reductions of those that were shown, in as many steps.
    const double steps = step.stages.size() > 1 ? 2 : 1;
    for (const Sent& sent : stage.program->device().cut().sent)
      add_sent(all, sent, batches / static_cast<double>(step.micro_batches) / steps);
  } else {
    const StageRecord& record = *stage.record;
    for (const Segment* segment :
         {&record.begin, &record.finish, &record.measure, &record.update, &record.report})
      add(*segment, 1);
    for (const auto& [block, segment] : record.block_done) add(segment, 1);
  }
  const auto stages = static_cast<int64_t>(step.stages.size());
  for (int64_t c = 0; stages > 1 && c < step.virtual_chunks; ++c) {
    const int64_t v = c * stages + static_cast<int64_t>(index);
    const auto bytes = static_cast<double>(step.hidden_bytes);
    const auto pass_on = [&](const char* purpose, const char* group, size_t edge) {
      add_sent(all, {"send", purpose, group, bytes, step.off_node[edge] ? bytes : 0, 1}, batches);
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
  std::map<std::string, std::unique_ptr<ChunkRecord>> chunks;
  std::map<std::string, SourceCounts> counts;
  std::map<std::string, StageRecord> stages;
  // One scenario at a time.
  std::vector<std::unique_ptr<LayerLoads>> loads;
  std::string layer_key, stage_key, trace_key;
  std::shared_ptr<const RoutingTrace> trace;
  KernelList scratch;

  Inside(ClusterProfile p, References r) : profile(std::move(p)), references(std::move(r)) {
    const auto refuse = [&](const char* what) {
      throw Error(ErrorClass::configuration,
                  "cluster.profile \"" + profile.name + "\" has " + what +
                      ", which cluster.fidelity representative does not know; legal: fluid, flow");
    };
    if (!profile.faults.empty()) refuse("faults");
    if (profile.fabric.kind == FabricKind::platform) refuse("a platform file as its fabric");
    for (const Key& key : scenario_keys().keys) {
      if (never_matters(key.path)) continue;
      if (matters_to_layers(key.path)) layer_fields.push_back(key.field);
      if (matters_to_stages(key.path)) stage_fields.push_back(key.field);
    }
  }

  CollectivePrices& prices(const Scenario& scenario) {
    auto& world = worlds[scenario.distributed_config.world_size];
    if (!world) world = std::make_unique<World>(profile, scenario.distributed_config.world_size);
    auto& prices = world->prices[choice_text(scenario)];
    if (!prices)
      prices = std::make_unique<CollectivePrices>(
          world->machine, nccl_choice(scenario.cluster.collective_algorithm, scenario.nccl));
    return *prices;
  }

  /// Read once for scenarios that name the same.
  std::shared_ptr<const RoutingTrace> trace_of(const Scenario& scenario) {
    const RoutingConfig& routing = scenario.routing;
    std::string key = scenario.path + "\n" + routing.source + "\n" + routing.without_numerics +
                      "\n" + routing.trace_file + "\n" + routing.scenario + "\n";
    append(key, scenario.model_config.num_layers);
    append(key, scenario.model_config.moe_layer_config.num_experts);
    append(key, scenario.model_config.moe_layer_config.moe_every_k_layers);
    append(key, scenario.model_config.moe_layer_config.first_dense_layers);
    if (key != trace_key) {
      trace = load_trace(scenario);
      trace_key = key;
      counts.clear();
    }
    return trace;
  }

  void read_keys(const Scenario& scenario, const Grid& grid) {
    auto& readable = const_cast<Scenario&>(scenario);  // the table's members are for writing too
    layer_key.clear();
    stage_key.clear();
    for (const Field& field : layer_fields) std::visit(AppendBytes{readable, layer_key}, field);
    for (const Field& field : stage_fields) std::visit(AppendBytes{readable, stage_key}, field);
    const std::string choice = choice_text(scenario);
    layer_key += choice;
    stage_key += choice;
    if (scenario.model_config.moe_layer_config.aux_loss_scope == "global_batch")
      append(layer_key, grid.ddp());
  }

  const ChunkRecord& chunk(const RecordingSetup& setup, const std::vector<RecordedRank>& ranks,
                           int64_t step, LayerRange range, bool first, bool last) {
    std::string key = layer_key;
    append(key, setup.settings.slowness);
    append(key, setup.split);
    append(key, first);
    append(key, last);
    append(key, range.count);
    if (range.count == 0) append(key, range.first);  // blocks are numbered by layers
    append(key, ranks.size());
    for (const RecordedRank& rank : ranks)
      if (rank.loads) key += rank.loads->signature();
    auto& known = chunks[key];
    if (!known)
      known = std::make_unique<ChunkRecord>(record_chunk(setup, ranks, step, range, first, last));
    return *known;
  }

  /// The rank of the EP group that takes longest for its experts' products, and whoever keeps
  /// others waiting in a single exchange: with slices of tokens (over TP, or chunks) the one is not
  /// always the other.
  std::vector<RecordedRank> slowest(const RecordingSetup& setup, int64_t rank, int64_t step,
                                    int64_t layer) {
    const Scenario& scenario = setup.scenario;
    const ModelConfig& model = scenario.model_config;
    const std::string& source = scripted_source(scenario);
    std::string key = layer_key;
    append(key, scenario.training_config.seed);
    append(key, setup.grid.ddp());
    if (varies_by_layer(source)) append(key, layer);
    if (varies_by_step(source)) append(key, step);
    const size_t length = key.size();
    const auto counts_of = [&](int64_t ddp) -> const SourceCounts& {
      key.resize(length);
      append(key, ddp);
      const auto found = counts.find(key);
      if (found != counts.end()) return found->second;
      return counts
          .emplace(key, source_counts(scenario, setup.grid, setup.trace.get(), references, ddp,
                                      step, layer))
          .first->second;
    };
    const auto make = [&](int64_t of) {
      loads.push_back(std::make_unique<LayerLoads>(scenario, setup.grid, of, counts_of));
      return loads.back().get();
    };
    const LayerLoads* of_first = make(rank);
    const Group& group = of_first->group();
    int64_t worst = 0;
    double longest = -1;
    for (int64_t r = 0; r < group.size(); ++r) {
      const std::vector<int64_t> rows = of_first->expert_rows(r);
      KernelWork work;
      work.kind = KernelKind::grouped_gemm;
      work.dtype = parse_dtype(scenario.training_config.dtype);
      work.n = model.expert_width();
      work.k = model.hidden_size;
      work.batch = static_cast<int64_t>(rows.size());
      work.m = *std::max_element(rows.begin(), rows.end());
      double all = 0;
      for (int64_t n : rows) all += static_cast<double>(n);
      const auto n = static_cast<double>(work.n), k = static_cast<double>(work.k);
      const auto size = static_cast<double>(dtype_size(work.dtype));
      work.flop = 2 * all * n * k;
      work.bytes = size * (all * (n + k) + static_cast<double>(work.batch) * n * k);
      work.group_rows = &rows;
      const double seconds = cost(work, profile.gpu).value;
      if (seconds > longest) longest = seconds, worst = r;
    }
    std::vector<int64_t> ranks{group.member(worst)};
    if (setup.grid.tp() > 1 || scenario.distributed_config.comm_optimization.all_to_all_overlap)
      for (int64_t q = 0; q < setup.grid.tp(); ++q)
        for (const int64_t full : of_first->fullest(rank + q))
          if (std::find(ranks.begin(), ranks.end(), full) == ranks.end()) ranks.push_back(full);
    std::vector<RecordedRank> recorded;
    for (const int64_t r : ranks) recorded.push_back({r, make(r)});
    return recorded;
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
  in.read_keys(scenario, grid);
  in.loads.clear();
  RecordingSetup setup{scenario, grid, prices, {}, nullptr, false};
  setup.settings.compute_dtype = parse_dtype(training.dtype);
  setup.settings.kernels = parse_kernels(scenario.cluster.kernels, scenario.cluster.attention);
  setup.settings.kernels.attention_dropout = scenario.model_config.dropout > 0;
  setup.settings.kernels.fp8_products = scenario.cluster.fp8_products;
  setup.settings.references = in.references;
  setup.split = grid.pp() > 1 && distributed.pipeline_schedule == "zb_h1";
  setup.trace = in.trace_of(scenario);

  const int64_t p = grid.pp(), ranks = grid.world() / p, v = distributed.virtual_pipeline_size;
  ComposeSetup step;
  step.schedule = distributed.pipeline_schedule;
  step.micro_batches = training.global_batch_size / (grid.ddp() * training.micro_batch_size);
  step.virtual_chunks = v;
  step.launch_seconds = in.profile.gpu.launch_overhead_seconds.value;
  const int64_t tokens = training.micro_batch_size * model.sequence_length /
                         (distributed.sequence_parallel ? grid.tp() : 1);
  step.hidden_bytes = tokens * model.hidden_size * dtype_size(parse_dtype(training.dtype));
  for (int64_t s = 0; p > 1 && s < p; ++s) {
    const int64_t next = (s + 1) % p, low = std::min(s, next), high = std::max(s, next);
    const Group pair{low * ranks, 1, 0, 2, (high - low) * ranks};
    const double bytes = static_cast<double>(step.hidden_bytes);
    const CollectivePrice& price =
        prices.price(CollectiveKind::send, pair, "pp_forward", bytes, bytes);
    step.forward_seconds.push_back(price.seconds);
    step.backward_seconds.push_back(price.seconds);
    step.stage_ports = price.ports;
    step.off_node.push_back(price.sent_off_node > 0);
  }

  const bool gathers =
      sharding_of(distributed).shard == Shard::everything && grid.ddp() * grid.edp() > 1;
  Estimate estimate;
  int64_t routed = 0, dropped = 0;
  const std::vector<LayerRange> ranges = stage_layers(model, distributed);
  std::deque<ChunkPasses> chunks;
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
        const LayerRange none{last ? model.num_layers : 0, 0};
        ends = &in.chunk(setup, {{rank, nullptr}}, options.step, none, first, last);
        chunk.data = &ends->data;
      }
      if (first) chunk.blocks.push_back({0, &ends->blocks.at(0)});
      for (int64_t layer = range.first; layer < range.end(); ++layer) {
        const ChunkRecord* record = nullptr;
        const std::vector<RecordedRank> recorded =
            model.is_moe_layer(layer) ? in.slowest(setup, rank, options.step, layer)
                                      : std::vector<RecordedRank>{{rank, nullptr}};
        if (const LayerLoads* loads = recorded.front().loads) {
          routed += loads->routed();
          dropped += loads->dropped();
        }
        record = &in.chunk(setup, recorded, options.step, {layer, 1}, false, false);
        chunk.blocks.push_back({layer + 1, &record->blocks.begin()->second});
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
      std::string key = in.stage_key;
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

  // Micro-batches of one stage follow each other alike: of parameters that come and go a few show
  // what one more costs.
  constexpr int64_t kShown = 8;
  const int64_t wanted = step.micro_batches;
  double more = 0;
  if (gathers && p == 1 && wanted > kShown) {
    step.micro_batches = kShown;
    more = static_cast<double>(wanted - kShown);
  }
  const StepResult result = compose(step);

  estimate.step_seconds = result.seconds + more * result.last_micro_batch_seconds;
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
    const StageResult& stage = result.stages[s];
    const StageSetup& made = step.stages[s];
    const int64_t communicators = made.record
                                      ? made.record->communicator_bytes
                                      : made.program->device().properties().communicator_bytes;
    estimate.stages.push_back(
        {stage.parts, stage.peak_bytes, stage.classes, stage.host_syncs, communicators, {}});
    estimate.device_bytes =
        std::max(estimate.device_bytes, stage.peak_bytes + communicators + estimate.context_bytes);
    if (options.traffic) estimate.stages.back().sent = traffic_of(step, s, wanted);
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
