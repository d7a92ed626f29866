#include "backends/sim/representative/loads.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>

#include "core/base/error.h"
#include "core/moe/balance.h"
#include "core/moe/workload.h"
#include "core/ops/dispatch.h"
#include "core/ops/table.h"
#include "core/scenario/sizes.h"

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

SourceAssignments source_counts(const Scenario& scenario, const Grid& grid,
                                const RoutingTrace* trace, const References& references,
                                int64_t ddp, int64_t step, int64_t layer) {
  const ModelConfig& model = scenario.model_config;
  const MoeLayerConfig& moe = model.moe_layer_config;
  const int64_t tokens =
      scenario.training_config.micro_batch_size * local_sequence_length(scenario);
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
  SourceAssignments found;
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

LayerLoads::LayerLoads(const Scenario& scenario, const Grid& grid, int64_t gpus_per_node,
                       int64_t rank, int64_t step, const CountsAt& counts)
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
    const SourceAssignments& source = counts(ddp, step);
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
  if (scenario.rebalancing.kind != "none") plan(scenario, gpus_per_node, step, counts);
}

GroupCounts LayerLoads::group_counts(
    const std::function<const std::vector<int64_t>&(int64_t)>& kept_of_rank) const {
  GroupCounts counts{ep_.size(), experts_, chunks_, {}};
  const int64_t all = slices_ * chunks_;
  for (int64_t i = 0; i < ep_.size(); ++i) {
    const std::vector<int64_t>& kept = kept_of_rank(ep_.member(i));
    const int64_t slice = grid_.coordinates(ep_.member(i)).tp;
    for (int64_t e = 0; e < experts_; ++e)
      for (int64_t c = 0; c < chunks_; ++c)
        counts.rows.push_back(kept[static_cast<size_t>(e * all + slice * chunks_ + c)]);
  }
  return counts;
}

ExpertPlaces LayerLoads::places(const Scenario& scenario, int64_t gpus_per_node, int64_t first,
                                int64_t end, const CountsAt& counts) const {
  const int64_t all = slices_ * chunks_;
  std::vector<double> loads(static_cast<size_t>(experts_), 0);
  for (int64_t s = first; s < end; ++s)
    for (int64_t ddp = 0; ddp < grid_.ddp(); ++ddp) {
      const std::vector<int64_t>& kept = counts(ddp, s).kept;
      for (int64_t i = 0; i < experts_ * all; ++i)
        loads[static_cast<size_t>(i / all)] += static_cast<double>(kept[static_cast<size_t>(i)]);
    }
  PlacementShape shape;
  shape.ranks = ep_.size();
  shape.groups = scenario.routing.groups;
  shape.threshold = scenario.rebalancing.imbalance_threshold;
  if (ep_.size() % gpus_per_node == 0) shape.nodes = ep_.size() / gpus_per_node;
  return choose_places(loads, first_places(experts_), shape);
}

void LayerLoads::plan(const Scenario& scenario, int64_t gpus_per_node, int64_t step,
                      const CountsAt& counts) {
  const auto at = [&](int64_t s) {
    return group_counts([&](int64_t rank) -> const std::vector<int64_t>& {
      return counts(grid_.coordinates(rank).ddp, s).kept;
    });
  };
  of_group_ = at(step);
  const std::unique_ptr<RebalancingPolicy> policy = make_policy(rebalancing_setup(scenario));
  // What the last whole interval chose: its steps are shown where they differ.
  const std::string& kind = scenario.rebalancing.kind;
  const int64_t interval = scenario.rebalancing.interval_steps;
  const int64_t chosen = 1 + (step - 1) / interval * interval;
  const bool differ = varies_by_step(scripted_source(scenario));
  const int64_t first = chosen - interval, end = differ ? chosen : first + 1;
  ExpertPlaces moved;
  if (kind == "placement" && chosen > 1) {
    moved = places(scenario, gpus_per_node, first, end, counts);
    of_group_ = of_group_.by_place(moved);
  }
  if (kind == "replication" && chosen > 1)
    for (int64_t s = first; s < end; ++s) policy->plan(differ ? at(s) : of_group_, s);
  ExpertPlan plan = policy->plan(of_group_, step);
  plan.places = moved;
  plan_ = std::make_shared<const ExpertPlan>(std::move(plan));
  const auto sign = [&](const auto& value) {
    signature_.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const std::vector<int64_t>& guests : plan_->guests) {
    sign(guests.size());
    for (const int64_t e : guests) sign(e);
  }
  for (const int64_t place : moved) sign(place);
}

const std::vector<int64_t>& LayerLoads::kept_of(int64_t rank) const {
  return *kept_.at(grid_.coordinates(rank).ddp);
}

std::vector<int64_t> LayerLoads::expert_rows(int64_t ep_rank) const {
  if (plan_) {
    std::vector<int64_t> worked(static_cast<size_t>(plan_->slots(of_group_, ep_rank)), 0);
    for (int64_t c = 0; c < chunks_; ++c)
      cut_rows(*plan_, of_group_, c, [&](const RowCut& cut) {
        if (cut.rank == ep_rank)
          worked[static_cast<size_t>(plan_->slot(of_group_, ep_rank, cut.expert))] += cut.rows;
      });
    return worked;
  }
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
  if (plan_) {
    cut_rows(*plan_, of_group_, chunk, [&](const RowCut& cut) {
      rows[static_cast<size_t>(cut.source * n + cut.rank)] += static_cast<double>(cut.rows);
    });
    return rows;
  }
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

std::vector<int64_t> LayerLoads::hosts() const {
  if (!plan_ || !plan_->moves()) return {};
  if (ep_.size() <= 16) return ep_.members();
  std::vector<size_t> here, away(plan_->guests.size(), 0);
  for (const std::vector<int64_t>& guests : plan_->guests) {
    here.push_back(guests.size());
    for (const int64_t e : guests) ++away[static_cast<size_t>(of_group_.home(e))];
  }
  const auto most = [&](const std::vector<size_t>& of) {
    return ep_.member(std::max_element(of.begin(), of.end()) - of.begin());
  };
  return {most(here), most(away)};
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
  if (plan_ && group == ep_ && std::string_view(call.purpose).starts_with("expert ")) {
    // Guests' weights from home, or their gradients back.
    const bool back = std::string_view(call.purpose) != "expert weights";
    for (size_t r = 0; r < size; ++r)
      for (const int64_t e : plan_->guests[r]) {
        const auto home = static_cast<size_t>(of_group_.home(e));
        rows[back ? r * size + home : home * size + r] += 1;
      }
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
  if (plan_) {
    for (int64_t r = 0; r < group.size(); ++r)
      to = std::copy_n(kept_of(group.member(r)).begin(), experts_ * all, to);
    return;
  }
  for (int64_t q = 0; q < group.size(); ++q) take(grid_.group(GroupKind::ep, group.member(q)));
}

}  // namespace moetwin
