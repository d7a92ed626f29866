#pragma once
// What a plan chooses between: layouts of the world and what goes with them.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/sweep/points.h"
#include "core/scenario/scenario.h"

namespace moetwin {

/// The sizes of both grids (semantics 1): W = EDP x EP x ETP x PP and a multiple of TP x PP.
struct PlanLayout {
  int64_t tp = 1, pp = 1, ep = 1, etp = 1, edp = 1;
  bool operator==(const PlanLayout&) const = default;
};

/// One way to train the scenario.
struct PlanPoint {
  PlanLayout layout;
  std::string sharding = "NO_SHARD";  ///< fsdp.sharding_strategy
  std::string schedule = "1f1b";
  int64_t virtual_stages = 1;
  int64_t micro_batch = 1;
  std::string recompute = "none";
  bool cpu_offload = false;
  bool overlap = false;  ///< of the token exchange with the experts
  std::optional<double> capacity_factor;
  /// rebalancing.kind; replication with as many replicas on each rank as the scenario has, or one.
  std::string rebalancing = "none";
};

/// The values of every choice, each in the order in which it is tried.
struct PlanSpace {
  std::vector<int64_t> tp, pp, ep;
  std::vector<int64_t> etp;  ///< 0: as TP
  std::vector<std::string> sharding, schedule, recompute;
  std::vector<int64_t> virtual_stages, micro_batch;
  std::vector<bool> cpu_offload, overlap;
  std::vector<std::optional<double>> capacity_factor;
  std::vector<std::string> rebalancing;
};

/// Every size that may go with the scenario's world: TP up to a node's GPUs and PP up to the
/// layers, both dividing; EP up to the experts; ETP as TP or 1; the sharding strategies of ZeRO 0
/// to 3, and the hybrid one where there are several nodes; micro-batches of powers of two; the
/// scenario's capacity factor and rebalancing.
PlanSpace plan_space(const Scenario& scenario, int64_t gpus_per_node);

/// Only these values of a key that a plan chooses. Throws Error(configuration) with the legal keys,
/// or where a value is none of the key's.
void narrow(PlanSpace& space, const Axis& axis);

/// The points of it that need the least memory: no time is to be compared, only whether anything
/// fits.
PlanSpace memory_space(PlanSpace space);

/// The layouts of the space that fit the world, in its order.
std::vector<PlanLayout> plan_layouts(const PlanSpace& space, const Scenario& scenario);

/// The scenario trained that way, without numerics.
Scenario planned(const Scenario& scenario, const PlanPoint& point);
/// What a file that extends the scenario has to say for it: "key=value".
std::vector<std::string> plan_overrides(const Scenario& scenario, const PlanPoint& point);

}  // namespace moetwin
