#include "core/topology/grid.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/scenario/sizes.h"

namespace moetwin {

int64_t Group::index_of(int64_t rank) const {
  // One stride nests inside the other, so the larger one is divided out first.
  int64_t rest = rank - base;
  if (rest < 0) return -1;
  const auto take = [&rest](int64_t n, int64_t stride) {
    if (n <= 1 || stride == 0) return int64_t{0};
    const int64_t i = std::min(rest / stride, n - 1);
    rest -= i * stride;
    return i;
  };
  int64_t i0 = 0, i1 = 0;
  if (stride0 >= stride1) {
    i0 = take(n0, stride0);
    i1 = take(n1, stride1);
  } else {
    i1 = take(n1, stride1);
    i0 = take(n0, stride0);
  }
  return rest == 0 ? i0 * n1 + i1 : -1;
}

std::vector<int64_t> Group::members() const {
  std::vector<int64_t> ranks(size());
  for (int64_t i = 0; i < size(); ++i) ranks[i] = member(i);
  return ranks;
}

const char* group_kind_name(GroupKind kind) {
  switch (kind) {
    case GroupKind::tp:
      return "TP";
    case GroupKind::cp:
      return "CP";
    case GroupKind::ep:
      return "EP";
    case GroupKind::expert_tp:
      return "expert-TP";
    case GroupKind::expert_dp:
      return "expert-DP";
    case GroupKind::dense_dp:
      return "dense-DP";
    case GroupKind::pp:
      return "PP";
    case GroupKind::embedding:
      return "embedding";
    case GroupKind::world:
      return "world";
    case GroupKind::stage:
      return "stage";
  }
  throw Error(ErrorClass::internal, "internal error: unknown kind of group");
}

const char* group_kind_carries(GroupKind kind) {
  switch (kind) {
    case GroupKind::tp:
      return "attention and dense-FFN shards";
    case GroupKind::cp:
      return "keys and values of attention";
    case GroupKind::ep:
      return "token all-to-all";
    case GroupKind::expert_tp:
      return "expert hidden shards under TP";
    case GroupKind::expert_dp:
      return "expert gradients";
    case GroupKind::dense_dp:
      return "dense gradients";
    case GroupKind::pp:
      return "activations between stages";
    case GroupKind::embedding:
      return "tied embeddings";
    case GroupKind::world:
      return "gradient norm, overflow and non-finite flags";
    case GroupKind::stage:
      return "gradients of weights that saw slices of tokens or heads";
  }
  throw Error(ErrorClass::internal, "internal error: unknown kind of group");
}

std::vector<GroupKind> all_group_kinds() {
  return {GroupKind::tp,        GroupKind::cp,       GroupKind::ep, GroupKind::expert_tp,
          GroupKind::expert_dp, GroupKind::dense_dp, GroupKind::pp, GroupKind::embedding,
          GroupKind::world,     GroupKind::stage};
}

Grid::Grid(const DistributedConfig& config, int64_t num_experts, int64_t expert_width) {
  const std::vector<SizeProblem> problems = size_problems(config, num_experts, expert_width);
  if (!problems.empty()) {
    std::string text;
    for (const SizeProblem& problem : problems)
      text += (text.empty() ? "" : "\n") + problem.key + ": " + problem.message;
    throw Error(ErrorClass::configuration, text);
  }
  const ParallelSizes sizes = parallel_sizes(config, num_experts);
  world_ = sizes.world, ddp_ = sizes.ddp, tp_ = sizes.tp, pp_ = sizes.pp;
  cp_ = sizes.cp;
  edp_ = sizes.edp, ep_ = sizes.ep, etp_ = sizes.etp;
  esd_ = sizes.expert_sharding, hsd_ = sizes.hidden_sharding, local_experts_ = sizes.local_experts;
}

Coordinates Grid::coordinates(int64_t rank) const {
  require(0 <= rank && rank < world_, "rank outside the grid");
  Coordinates at;
  at.tp = rank % tp_;
  at.ddp = rank / tp_ % ddp_;
  at.pp = rank / (world_ / pp_);
  at.etp = rank % etp_;
  at.ep = rank / etp_ % ep_;
  at.edp = rank / (etp_ * ep_) % edp_;
  return at;
}

int64_t Grid::rank_of_expert_grid(int64_t pp, int64_t edp, int64_t ep, int64_t etp) const {
  return ((pp * edp_ + edp) * ep_ + ep) * etp_ + etp;
}

int64_t Grid::rank_of_dense_grid(int64_t pp, int64_t ddp, int64_t tp) const {
  return (pp * ddp_ + ddp) * tp_ + tp;
}

Group Grid::group(GroupKind kind, int64_t rank) const {
  const Coordinates at = coordinates(rank);
  // Groups of one keep stride 1, so that equal groups compare equal.
  const auto along = [rank](int64_t position, int64_t size, int64_t stride) {
    return size == 1 ? Group{rank} : Group{rank - position * stride, 1, 0, size, stride};
  };
  const int64_t stage = world_ / pp_;
  switch (kind) {
    case GroupKind::tp:
      return along(at.tp, tp_, 1);
    case GroupKind::cp:
      return along(at.ddp % cp_, cp_, tp_);
    case GroupKind::dense_dp:
      return along(at.ddp, ddp_, tp_);
    case GroupKind::expert_tp:
      return along(at.etp, etp_, 1);
    case GroupKind::ep:
      return along(at.ep, ep_, etp_);
    case GroupKind::expert_dp:
      return along(at.edp, edp_, ep_ * etp_);
    case GroupKind::pp:
      return along(at.pp, pp_, stage);
    case GroupKind::embedding:
      if (pp_ == 1 || (at.pp != 0 && at.pp != pp_ - 1)) return Group{rank};
      return along(at.pp == 0 ? 0 : 1, 2, stage * (pp_ - 1));
    case GroupKind::world:
      return along(rank, world_, 1);
    case GroupKind::stage:
      return along(rank % stage, stage, 1);
  }
  throw Error(ErrorClass::internal, "internal error: unknown kind of group");
}

std::vector<Group> Grid::groups(GroupKind kind) const {
  std::vector<Group> all;
  for (int64_t rank = 0; rank < world_; ++rank) {
    const Group candidate = group(kind, rank);
    if (candidate.base == rank) all.push_back(candidate);
  }
  return all;
}

}  // namespace moetwin
