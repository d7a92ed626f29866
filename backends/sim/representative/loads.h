#pragma once
// What every rank of one expert-parallel group has to do in an MoE layer: the counts of scripted
// routing, source by source, as the dispatcher would exchange them.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/sim/representative/solo.h"
#include "core/moe/rebalancing/placement.h"
#include "core/moe/rebalancing/policy.h"
#include "core/moe/routing_trace.h"
#include "core/scenario/scenario.h"
#include "core/topology/grid.h"

namespace moetwin {

/// routing.source, or what stands in for a learned router with numerics none.
const std::string& scripted_source(const Scenario& scenario);
/// Whether its counts are other ones in every layer, or at every step.
bool varies_by_layer(const std::string& source);
bool varies_by_step(const std::string& source);

/// What one source rank's router says in a micro-batch of one layer and step.
struct SourceAssignments {
  int64_t routed = 0;
  std::vector<int64_t> kept;  ///< [E * chunks + 1], as op dispatch_plan writes it
};
SourceAssignments source_counts(const Scenario& scenario, const Grid& grid,
                                const RoutingTrace* trace, const References& references,
                                int64_t ddp, int64_t step, int64_t layer);

/// A micro-batch of one layer and step.
class LayerLoads : public Peers {
 public:
  /// Of a dense-DP coordinate at a step.
  using CountsAt = std::function<const SourceAssignments&(int64_t ddp, int64_t step)>;
  /// Of the EP group of `rank` at `step`; with so many GPUs on a node.
  LayerLoads(const Scenario& scenario, const Grid& grid, int64_t gpus_per_node, int64_t rank,
             int64_t step, const CountsAt& counts);

  std::vector<double> rows(const CollectiveCall& call, const Group& group) const override;
  void fill(const CollectiveCall& call, const Group& group) const override;

  const Group& group() const { return ep_; }
  /// Assignments of all sources, and of them those over capacity.
  int64_t routed() const { return routed_; }
  int64_t dropped() const { return dropped_; }
  /// Null where the scenario does not rebalance.
  const std::shared_ptr<const ExpertPlan>& expert_plan() const { return plan_; }
  /// Whether guests stay for the whole step.
  bool guests_stay() const { return plan_ && plan_->for_the_step && plan_->moves(); }
  /// Rows of each local expert of an EP rank and of its guests, over all its sources.
  std::vector<int64_t> expert_rows(int64_t ep_rank) const;
  /// The world rank of who gets most rows in each chunk, where not all get the same; of the EP
  /// group of `rank`.
  std::vector<int64_t> fullest(int64_t rank) const;
  /// The world ranks that others wait for where loads are even: with guests, and homes of guests,
  /// each is the last at another exchange. All of a group of up to 16; of larger ones who has most
  /// guests, and whose experts are most often guests elsewhere. Empty where nothing moves.
  std::vector<int64_t> hosts() const;
  /// Equal strings: equal counts of every rank.
  const std::string& signature() const { return signature_; }

 private:
  /// [E * chunks] kept rows of the rank's router.
  const std::vector<int64_t>& kept_of(int64_t rank) const;
  /// Rows from member i to member j of the EP group in chunk c, [i * n + j].
  std::vector<double> matrix(const Group& group, int64_t chunk) const;
  /// Of the EP group, from the kept rows of each rank.
  GroupCounts group_counts(
      const std::function<const std::vector<int64_t>&(int64_t rank)>& kept) const;
  void plan(const Scenario& scenario, int64_t gpus_per_node, int64_t step, const CountsAt& counts);
  /// Where experts are at home after steps [first, end): chosen from the loads of all copies.
  ExpertPlaces places(const Scenario& scenario, int64_t gpus_per_node, int64_t first, int64_t end,
                      const CountsAt& counts) const;

  const Grid& grid_;
  Group ep_;
  int64_t rank_, experts_, slices_, chunks_, local_;
  std::map<int64_t, const std::vector<int64_t>*> kept_;  ///< by dense-DP coordinate
  std::shared_ptr<const ExpertPlan> plan_;               ///< null: the scenario does not rebalance
  GroupCounts of_group_;                                 ///< where it does
  std::string signature_;
  int64_t routed_ = 0, dropped_ = 0;
};

}  // namespace moetwin
