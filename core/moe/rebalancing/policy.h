#pragma once
// Policies of rebalancing: one file and one table line each.

#include <memory>

#include "core/moe/rebalancing/plan.h"
#include "core/scenario/scenario.h"

namespace moetwin {

class RebalancingPolicy {
 public:
  virtual ~RebalancingPolicy() = default;
  /// Of one micro-batch of one layer in the training step `step`; called once for each, in order.
  virtual ExpertPlan plan(const GroupCounts& counts, int64_t step) = 0;
};

/// Whether the loads of an interval choose for the next one; else each micro-batch's own do.
bool by_interval(const RebalancingConfig& config);

/// What a policy may reckon with.
struct RebalancingSetup {
  RebalancingConfig config;
  double row_bytes = 0;                      ///< of a token on its way
  double row_flop = 0;                       ///< forward of one row through an expert
  double expert_bytes = 0;                   ///< weights of one expert
  std::shared_ptr<const ExpertPlan> always;  ///< this plan whatever is counted; null: the policy's
};
RebalancingSetup rebalancing_setup(const Scenario& scenario);

/// The one of rebalancing.kind for one layer; null: none.
std::unique_ptr<RebalancingPolicy> make_policy(const RebalancingSetup& setup);

// The policies; the table is in policy.cpp.
/// EPLB's replicas (replicate_heaviest) of the loads of the last interval, each packed on the
/// lightest rank with room that lacks the expert; an expert's rows are shared equally among its
/// copies. Weights and optimizer state stay at home, as in SYMI (Skiadopoulos et al. 2025): copies
/// get weights at a step's first forward and give gradients back at its last backward.
std::unique_ptr<RebalancingPolicy> make_replication(const RebalancingSetup& setup);
/// FasterMoE's dynamic shadowing (He et al., PPoPP 2022): the heaviest experts go to every rank,
/// one after the other as long as the modelled latency falls.
std::unique_ptr<RebalancingPolicy> make_shadowing(const RebalancingSetup& setup);
/// Least-loaded expert parallelism (LLEP): heaviest experts first, what a rank cannot take within
/// its share goes to the least loaded ranks in pieces of at least min_tokens; the rest stays.
std::unique_ptr<RebalancingPolicy> make_spill(const RebalancingSetup& setup);

}  // namespace moetwin
