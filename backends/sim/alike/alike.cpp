#include "backends/sim/alike/alike.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/scenario/sharding.h"
#include "core/scenario/sizes.h"

namespace moetwin {
namespace {

/// Every copy's tokens choose alike (workload.h): shares of a trace and the lengths of W4 are each
/// source's own, and what is left over from even shares goes round the experts from source to
/// source.
bool routes_alike(const Scenario& s, int64_t sources_of_copy) {
  if (s.model_config.num_moe_layers() == 0) return true;
  const std::string& source =
      s.routing.source == "learned" ? s.routing.without_numerics : s.routing.source;
  if (source == "W4" || source == "W10" || source == "trace" || source == "proxy") return false;
  const MoeLayerConfig& moe = s.model_config.moe_layer_config;
  const int64_t assignments =
      s.training_config.micro_batch_size * local_sequence_length(s) * moe.top_k;
  return sources_of_copy * assignments % moe.num_experts == 0;
}

/// Nothing that looks at ranks one by one. A rank that keeps a share of the optimizer's state has a
/// launch for every parameter that its share touches: no two ranks need be alike.
bool plain(const Scenario& s) {
  return s.training_config.numerics == "none" && s.rebalancing.kind == "none" &&
         s.distributed_config.check_replicas_every_steps == 0 && !s.output.check_access &&
         sharding_of(s.distributed_config).shard == Shard::nothing;
}

}  // namespace

AlikeRanks::AlikeRanks(const Scenario& scenario, const Grid& grid)
    : stages_(grid.pp()),
      stage_(grid.world() / grid.pp()),
      copy_(std::lcm(grid.ep() * grid.etp(), grid.cp() * grid.tp())) {
  if (stage_ % copy_ == 0 && plain(scenario) && routes_alike(scenario, copy_ / grid.tp()))
    copies_ = stage_ / copy_;
  else
    copy_ = stage_;
}

int64_t AlikeRanks::leader(int64_t rank) const {
  const int64_t in_stage = rank % stage_;
  return in_stage < copy_ ? rank : rank - in_stage + copy_ + in_stage % copy_;
}

std::vector<int64_t> AlikeRanks::leaders() const {
  std::vector<int64_t> all;
  for (int64_t first = 0; first < stages_ * stage_; first += stage_)
    for (int64_t i = 0; i < std::min(copies_, int64_t{2}) * copy_; ++i) all.push_back(first + i);
  return all;
}

int64_t AlikeRanks::sharing(int64_t leader) const {
  return leader % stage_ < copy_ ? 1 : copies_ - 1;
}

Group counterpart(const Grid& grid, int64_t leader, const Group& group, int64_t rank) {
  if (rank == leader) return group;
  for (const GroupKind kind : all_group_kinds())
    if (grid.group(kind, leader) == group) return grid.group(kind, rank);
  // Two neighbouring stages' ranks at one place.
  require(group.size() == 2, "a group of the grid, or two ranks that are stages apart");
  Group moved = group;
  moved.base += rank - leader;
  return moved;
}

}  // namespace moetwin
