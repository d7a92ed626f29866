#include "backends/sim/representative/layer_records.h"

#include <algorithm>

#include "backends/sim/cost/roofline.h"
#include "core/scenario/sizes.h"

namespace moetwin {

namespace {
bool one_micro_batch(const RecordingSetup& setup) {
  const TrainingConfig& training = setup.scenario.training_config;
  return training.global_batch_size == setup.grid.batch_ranks() * training.micro_batch_size;
}
}  // namespace

void LayerRecords::begin(const Scenario& scenario, const Grid& grid, const std::string& choice,
                         const RecordingKeys& keys) {
  read_trace(scenario);
  std::string layer = keys.layer(scenario) + choice;
  if (scenario.model_config.moe_layer_config.aux_loss_scope == "global_batch")
    append(layer, grid.ddp());
  layer_number_ = number_of(layer);
  std::string routing = keys.routing(scenario);
  append(routing, scenario.training_config.seed);
  append(routing, scenario.training_config.micro_batch_size);
  append(routing, local_sequence_length(scenario));
  append(routing, scenario.distributed_config.comm_optimization.all_to_all_overlap);
  append(routing, scenario.distributed_config.comm_optimization.all_to_all_chunks);
  append(routing, grid.ddp());
  append(routing, grid.tp());
  append(routing, grid.expert_sharding());
  routing_number_ = number_of(routing);
  const std::string& source = scripted_source(scenario);
  by_layer_ = varies_by_layer(source);
  by_step_ = varies_by_step(source);
}

void LayerRecords::read_trace(const Scenario& scenario) {
  const RoutingConfig& routing = scenario.routing;
  std::string key = scenario.path + "\n" + routing.source + "\n" + routing.without_numerics + "\n" +
                    routing.trace_file + "\n" + routing.scenario + "\n";
  append(key, routing.first_step);
  append(key, scenario.model_config.num_layers);
  append(key, scenario.model_config.moe_layer_config.num_experts);
  append(key, scenario.model_config.moe_layer_config.moe_every_k_layers);
  append(key, scenario.model_config.moe_layer_config.first_dense_layers);
  if (key == trace_key_) return;
  trace_ = load_trace(scenario);
  trace_key_ = key;
  counts_.clear();
  layers_.clear();
}

int64_t LayerRecords::number_of(const std::string& text) {
  return numbers_.emplace(text, static_cast<int64_t>(numbers_.size())).first->second;
}

std::string LayerRecords::begin_key(const RecordingSetup& setup) const {
  std::string key;
  append(key, layer_number_);
  append(key, setup.settings.slowness);
  append(key, setup.split);
  return key;
}

LayerKind LayerRecords::layer(const RecordingSetup& setup, int64_t rank, int64_t step,
                              int64_t layer) {
  const bool moe = setup.scenario.model_config.is_moe_layer(layer);
  std::string key = begin_key(setup);
  append(key, moe);
  if (moe) {
    append(key, routing_number_);
    append(key, by_layer_ ? layer : -1);
    append(key, by_step_ ? step : -1);
    const RebalancingConfig& rebalancing = setup.scenario.rebalancing;
    if (by_interval(rebalancing)) {
      append(key, step > rebalancing.interval_steps);
      append(key, one_micro_batch(setup));
    }
  }
  const auto found = layers_.find(key);
  if (found != layers_.end()) return found->second;
  std::vector<std::unique_ptr<LayerLoads>> loads;
  std::vector<RecordedRank> ranks{{rank, nullptr}};
  if (moe) ranks = slowest(setup, rank, step, layer, loads);
  LayerKind kind;
  if (const LayerLoads* first = ranks.front().loads) {
    kind.routed = first->routed();
    kind.dropped = first->dropped();
  }
  const ChunkRecord& record = chunk(setup, ranks, step, {layer, 1}, false, false);
  kind.passes = &record.blocks.begin()->second;
  kind.once = record.once;
  return layers_.emplace(std::move(key), kind).first->second;
}

const ChunkRecord& LayerRecords::ends(const RecordingSetup& setup, int64_t rank, int64_t step,
                                      bool first, bool last) {
  const LayerRange none{last ? setup.scenario.model_config.num_layers : 0, 0};
  return chunk(setup, {{rank, nullptr}}, step, none, first, last);
}

const ChunkRecord& LayerRecords::chunk(const RecordingSetup& setup,
                                       const std::vector<RecordedRank>& ranks, int64_t step,
                                       LayerRange range, bool first, bool last) {
  std::string key = begin_key(setup);
  append(key, first);
  append(key, last);
  append(key, range.count);
  if (range.count == 0) append(key, range.first);  // blocks are numbered by layers
  append(key, ranks.size());
  for (const RecordedRank& rank : ranks) {
    if (!rank.loads) continue;
    key += rank.loads->signature();
    if (rank.loads->guests_stay()) append(key, one_micro_batch(setup));
  }
  auto& known = chunks_[key];
  if (!known)
    known = std::make_unique<ChunkRecord>(record_chunk(setup, ranks, step, range, first, last));
  return *known;
}

const SourceAssignments& LayerRecords::counts_of(const RecordingSetup& setup, int64_t ddp,
                                                 int64_t step, int64_t layer) {
  std::string key;
  append(key, routing_number_);
  append(key, ddp);
  append(key, by_layer_ ? layer : -1);
  append(key, by_step_ ? step : -1);
  const auto found = counts_.find(key);
  if (found != counts_.end()) return found->second;
  return counts_
      .emplace(std::move(key), source_counts(setup.scenario, setup.grid, setup.trace.get(),
                                             references_, ddp, step, layer))
      .first->second;
}

/// The rank of the EP group that takes longest for its experts' products, and whoever keeps others
/// waiting in a single exchange: with slices of tokens (over TP, or chunks) the one is not always
/// the other.
std::vector<RecordedRank> LayerRecords::slowest(const RecordingSetup& setup, int64_t rank,
                                                int64_t step, int64_t layer,
                                                std::vector<std::unique_ptr<LayerLoads>>& loads) {
  const Scenario& scenario = setup.scenario;
  const ModelConfig& model = scenario.model_config;
  const auto make = [&](int64_t of) {
    loads.push_back(std::make_unique<LayerLoads>(
        scenario, setup.grid, setup.prices.machine().profile().gpus_per_node, of, step,
        [&](int64_t ddp, int64_t at) -> const SourceAssignments& {
          return counts_of(setup, ddp, at, layer);
        }));
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
    const double seconds = cost(work, gpu_).value;
    if (seconds > longest) longest = seconds, worst = r;
  }
  std::vector<int64_t> ranks{group.member(worst)};
  if (setup.grid.tp() > 1 || scenario.distributed_config.comm_optimization.all_to_all_overlap)
    for (int64_t q = 0; q < setup.grid.tp(); ++q)
      for (const int64_t full : of_first->fullest(rank + q))
        if (std::find(ranks.begin(), ranks.end(), full) == ranks.end()) ranks.push_back(full);
  for (const int64_t host : of_first->hosts())
    if (std::find(ranks.begin(), ranks.end(), host) == ranks.end()) ranks.push_back(host);
  std::vector<RecordedRank> recorded;
  for (const int64_t r : ranks) recorded.push_back({r, make(r)});
  return recorded;
}

}  // namespace moetwin
