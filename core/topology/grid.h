#pragma once
// The two process grids over the same ranks (semantics 1) and the groups they define: the one place
// that validates and translates every parallel axis.
//   expert grid: W = EDP x EP x ETP x PP, rank = ((pp*EDP + edp)*EP + ep)*ETP + etp
//   dense grid:  W = DDP x TP x PP,       rank = (pp*DDP + ddp)*TP + tp
// Context parallel ranks are neighbours on the ddp axis: cp = ddp % CP.

#include <cstdint>
#include <string>
#include <vector>

#include "core/scenario/scenario.h"

namespace moetwin {

/// The members of one group: a set of at most three nested strides over ranks, never a stored list,
/// so that 16,384 ranks cost nothing. Member i of n = n0*n1 is base + (i / n1) * stride0 + (i % n1)
/// * stride1.
struct Group {
  int64_t base = 0;
  int64_t n0 = 1, stride0 = 0;
  int64_t n1 = 1, stride1 = 1;
  int64_t size() const { return n0 * n1; }
  int64_t member(int64_t i) const { return base + (i / n1) * stride0 + (i % n1) * stride1; }
  /// Index of `rank` in the group, or -1.
  int64_t index_of(int64_t rank) const;
  std::vector<int64_t> members() const;
  bool operator==(const Group&) const = default;
};

/// The kinds of groups of semantics 1, and `stage`: dense-DP x TP, all ranks with the same layers.
enum class GroupKind { tp, cp, ep, expert_tp, expert_dp, dense_dp, pp, embedding, world, stage };
const char* group_kind_name(GroupKind kind);
/// What the groups of a kind carry, as in the table of semantics 1.
const char* group_kind_carries(GroupKind kind);
/// Every kind, in the order in which all ranks create their groups.
std::vector<GroupKind> all_group_kinds();

/// Coordinates of one rank on both grids.
struct Coordinates {
  int64_t pp = 0, ddp = 0, tp = 0, edp = 0, ep = 0, etp = 0;
};

/// Sizes of all axes and what follows from them. Immutable once made.
class Grid {
 public:
  /// Validates every size; throws Error(configuration) that shows each factor and lists the legal
  /// values.
  explicit Grid(const DistributedConfig& config, int64_t num_experts, int64_t expert_width);

  int64_t world() const { return world_; }
  int64_t ddp() const { return ddp_; }
  int64_t tp() const { return tp_; }
  int64_t pp() const { return pp_; }
  int64_t cp() const { return cp_; }
  /// Dense-DP ranks with sequences of their own: ddp / CP.
  int64_t batch_ranks() const { return ddp_ / cp_; }
  int64_t edp() const { return edp_; }
  int64_t ep() const { return ep_; }
  int64_t etp() const { return etp_; }

  /// Whether the ranks of a TP group, each with its slice of the tokens, send them to different
  /// copies of the experts: a copy is a run of EP x ETP ranks, a TP group a run of TP ranks.
  bool parts_tp_groups() const { return tp_ > 1 && ep_ * etp_ % tp_ != 0; }

  /// Seed 004: expert sharding degree min(EP, E) and hidden sharding degree EP / esd.
  int64_t expert_sharding() const { return esd_; }
  int64_t hidden_sharding() const { return hsd_; }
  int64_t local_experts() const { return local_experts_; }
  /// EP rank r owns expert column r % esd and hidden row r / esd.
  int64_t expert_column(int64_t ep_rank) const { return ep_rank % esd_; }
  int64_t hidden_row(int64_t ep_rank) const { return ep_rank / esd_; }
  /// Global id of the first of the `local_experts()` consecutive experts of an EP rank.
  int64_t first_expert(int64_t ep_rank) const { return expert_column(ep_rank) * local_experts_; }

  Coordinates coordinates(int64_t rank) const;
  int64_t rank_of_expert_grid(int64_t pp, int64_t edp, int64_t ep, int64_t etp) const;
  int64_t rank_of_dense_grid(int64_t pp, int64_t ddp, int64_t tp) const;

  /// The group of `kind` that `rank` belongs to. A rank in the middle of the pipeline is alone in
  /// its embedding group.
  Group group(GroupKind kind, int64_t rank) const;
  /// All distinct groups of `kind`, ordered by lowest member.
  std::vector<Group> groups(GroupKind kind) const;

 private:
  int64_t world_, ddp_, tp_, pp_, cp_, edp_, ep_, etp_;
  int64_t esd_ = 1, hsd_ = 1, local_experts_ = 0;
};

}  // namespace moetwin
