#include "backends/sim/representative/loads.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/base/error.h"
#include "core/moe/balance.h"
#include "core/moe/workload.h"
#include "core/ops/dispatch.h"
#include "core/ops/table.h"

namespace moetwin {

const std::string& scripted_source(const Scenario& scenario) {
  const RoutingConfig& routing = scenario.routing;
  return routing.source == "learned" ? routing.without_numerics : routing.source;
}

bool varies_by_layer(const std::string& source) {
  for (const char* s : {"W1", "W3", "W7", "W8", "W10", "trace", "proxy"})
    if (source == s) return true;
  return false;
}

bool varies_by_step(const std::string& source) {
  for (const char* s : {"W6", "W7", "W9", "W10", "trace", "proxy"})
    if (source == s) return true;
  return false;
}

namespace {
int64_t chunks_of(const Scenario& scenario) {
  const CommOptimization& comm = scenario.distributed_config.comm_optimization;
  return comm.all_to_all_overlap ? comm.all_to_all_chunks : 1;
}
}  // namespace

SourceCounts source_counts(const Scenario& scenario, const Grid& grid, const RoutingTrace* trace,
                           const References& references, int64_t ddp, int64_t step, int64_t layer) {
  const ModelConfig& model = scenario.model_config;
  const MoeLayerConfig& moe = model.moe_layer_config;
  const int64_t tokens = scenario.training_config.micro_batch_size * model.sequence_length;
  RoutingConfig routing = scenario.routing;
  routing.source = scripted_source(scenario);
  PlanAttr plan;
  plan.experts = moe.num_experts;
  plan.top_k = moe.top_k;
  plan.capacity = expert_capacity(moe, tokens);
  plan.by_probability = moe.drop_policy == "probability";
  plan.chunks = grid.tp() * chunks_of(scenario);
  std::vector<int64_t> counts = scripted_counts(
      routing, static_cast<uint64_t>(scenario.training_config.seed), step, layer, ddp, grid.ddp(),
      tokens, moe.top_k, moe.num_experts, grid.expert_sharding(), trace);
  SourceCounts found;
  found.routed = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  counts.push_back(0);
  found.kept.resize(static_cast<size_t>(moe.num_experts * plan.chunks + 1));
  ReferenceCall call;
  call.op = &op_dispatch_plan;
  call.tensors[0].shape = {tokens, moe.top_k};
  call.tensors[2].data = counts.data();
  call.tensors[5].data = found.kept.data();
  std::memcpy(call.attributes.data(), &plan, sizeof plan);
  references(op_dispatch_plan)(call);
  return found;
}

LayerLoads::LayerLoads(const Scenario& scenario, const Grid& grid, int64_t rank,
                       const std::function<const SourceCounts&(int64_t)>& counts)
    : grid_(grid),
      ep_(grid.group(GroupKind::ep, rank)),
      rank_(rank),
      experts_(scenario.model_config.moe_layer_config.num_experts),
      slices_(grid.tp()),
      chunks_(chunks_of(scenario)),
      local_(grid.local_experts()) {
  const auto add = [&](int64_t of) {
    const int64_t ddp = grid.coordinates(of).ddp;
    if (kept_.count(ddp)) return;
    const SourceCounts& source = counts(ddp);
    const std::vector<int64_t>& kept = source.kept;
    kept_[ddp] = &kept;
    routed_ += source.routed;
    dropped_ += source.routed - std::accumulate(kept.begin(), kept.end() - 1, int64_t{0});
    signature_.append(reinterpret_cast<const char*>(kept.data()), kept.size() * sizeof(int64_t));
  };
  // Every source of the expert-TP group, whose members have EP groups of their own.
  const Group splits = grid.group(GroupKind::expert_tp, rank);
  for (int64_t q = 0; q < splits.size(); ++q) {
    const Group sources = grid.group(GroupKind::ep, splits.member(q));
    for (int64_t r = 0; r < sources.size(); ++r) add(sources.member(r));
  }
}

const std::vector<int64_t>& LayerLoads::kept_of(int64_t rank) const {
  return *kept_.at(grid_.coordinates(rank).ddp);
}

std::vector<int64_t> LayerLoads::expert_rows(int64_t ep_rank) const {
  std::vector<int64_t> rows(static_cast<size_t>(local_));
  const int64_t first = grid_.first_expert(ep_rank), all = slices_ * chunks_;
  const Group splits = grid_.group(GroupKind::expert_tp, rank_);
  for (int64_t q = 0; q < splits.size(); ++q) {
    const Group sources = grid_.group(GroupKind::ep, splits.member(q));
    for (int64_t r = 0; r < sources.size(); ++r) {
      const int64_t source = sources.member(r);
      const std::vector<int64_t>& kept = kept_of(source);
      const int64_t slice = grid_.coordinates(source).tp;
      for (int64_t e = 0; e < local_; ++e)
        for (int64_t c = 0; c < chunks_; ++c)
          rows[static_cast<size_t>(e)] +=
              kept[static_cast<size_t>((first + e) * all + slice * chunks_ + c)];
    }
  }
  return rows;
}

std::vector<double> LayerLoads::matrix(const Group& group, int64_t chunk) const {
  const int64_t n = group.size(), all = slices_ * chunks_;
  std::vector<double> rows(static_cast<size_t>(n * n));
  std::vector<double> columns(static_cast<size_t>(grid_.expert_sharding()));
  for (int64_t i = 0; i < n; ++i) {
    const std::vector<int64_t>& kept = kept_of(group.member(i));
    const int64_t slice = grid_.coordinates(group.member(i)).tp;
    std::fill(columns.begin(), columns.end(), 0);
    for (int64_t e = 0; e < experts_; ++e)
      columns[static_cast<size_t>(e / local_)] +=
          static_cast<double>(kept[static_cast<size_t>(e * all + slice * chunks_ + chunk)]);
    for (int64_t j = 0; j < n; ++j)
      rows[static_cast<size_t>(i * n + j)] = columns[static_cast<size_t>(grid_.expert_column(j))];
  }
  return rows;
}

std::vector<int64_t> LayerLoads::fullest(int64_t rank) const {
  const Group group = grid_.group(GroupKind::ep, rank);
  const auto n = static_cast<size_t>(group.size());
  std::vector<int64_t> found;
  for (int64_t c = 0; c < chunks_; ++c) {
    const std::vector<double> rows = matrix(group, c);
    std::vector<double> taken(n);
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j) taken[j] += rows[i * n + j];
    const auto [least, most] = std::minmax_element(taken.begin(), taken.end());
    if (*least < *most) found.push_back(group.member(most - taken.begin()));
  }
  return found;
}

std::vector<double> LayerLoads::rows(const CollectiveCall& call, const Group& group) const {
  const int64_t n = group.size();
  const auto size = static_cast<size_t>(n);
  std::vector<double> rows(size * size);
  const auto sent = [&](size_t j) { return static_cast<double>((*call.send_rows)[j]); };
  const auto taken = [&](size_t i) { return static_cast<double>((*call.recv_rows)[i]); };
  if (call.send.has_storage()) {  // counts: from everyone the same
    for (size_t i = 0; i < size; ++i)
      for (size_t j = 0; j < size; ++j) rows[i * size + j] = sent(j);
    return rows;
  }
  if (group == ep_) {
    const auto me = static_cast<size_t>(group.index_of(rank_));
    for (int64_t c = 0; c < chunks_; ++c) {
      const std::vector<double> there = matrix(group, c);
      bool forth = true, back = true;
      for (size_t i = 0; i < size; ++i) {
        const double out = there[me * size + i], in = there[i * size + me];
        forth = forth && out == sent(i) && in == taken(i);
        back = back && in == sent(i) && out == taken(i);
      }
      if (forth) return there;
      if (!back) continue;
      for (size_t i = 0; i < size; ++i)
        for (size_t j = 0; j < size; ++j) rows[i * size + j] = there[j * size + i];
      return rows;
    }
    require(false, "an exchange of tokens is one of the layer's");
  }
  // Over expert-TP every member gives all others the same rows, or takes the same from all.
  const bool gathers = std::all_of(call.send_rows->begin(), call.send_rows->end(),
                                   [&](int64_t r) { return r == call.send_rows->front(); });
  for (size_t i = 0; i < size; ++i)
    for (size_t j = 0; j < size; ++j) rows[i * size + j] = gathers ? taken(i) : sent(j);
  return rows;
}

void LayerLoads::fill(const CollectiveCall& call, const Group& group) const {
  const int64_t all = slices_ * chunks_;
  const int64_t first = grid_.first_expert(ep_.index_of(rank_));
  auto* to = reinterpret_cast<int64_t*>(call.recv.data());
  const auto take = [&](const Group& sources) {
    for (int64_t r = 0; r < sources.size(); ++r) {
      const std::vector<int64_t>& kept = kept_of(sources.member(r));
      to = std::copy_n(kept.begin() + first * all, local_ * all, to);
    }
  };
  if (call.kind == CollectiveKind::all_to_all_v) return take(group);
  for (int64_t q = 0; q < group.size(); ++q) take(grid_.group(GroupKind::ep, group.member(q)));
}

}  // namespace moetwin
