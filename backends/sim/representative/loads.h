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
struct SourceCounts {
  int64_t routed = 0;
  std::vector<int64_t> kept;  ///< [E * chunks + 1], as op dispatch_plan writes it
};
SourceCounts source_counts(const Scenario& scenario, const Grid& grid, const RoutingTrace* trace,
                           const References& references, int64_t ddp, int64_t step, int64_t layer);

/// A micro-batch of one layer and step.
class LayerLoads : public Peers {
 public:
  /// Of the EP group of `rank`. `counts`: of a dense-DP coordinate.
  LayerLoads(const Scenario& scenario, const Grid& grid, int64_t rank,
             const std::function<const SourceCounts&(int64_t)>& counts);

  std::vector<double> rows(const CollectiveCall& call, const Group& group) const override;
  void fill(const CollectiveCall& call, const Group& group) const override;

  const Group& group() const { return ep_; }
  /// Assignments of all sources, and of them those over capacity.
  int64_t routed() const { return routed_; }
  int64_t dropped() const { return dropped_; }
  /// Rows of each local expert of an EP rank, over all its sources.
  std::vector<int64_t> expert_rows(int64_t ep_rank) const;
  /// The world rank of who gets most rows in each chunk, where not all get the same; of the EP
  /// group of `rank`.
  std::vector<int64_t> fullest(int64_t rank) const;
  /// Equal strings: equal counts of every rank.
  const std::string& signature() const { return signature_; }

 private:
  /// [E * chunks] kept rows of the rank's router.
  const std::vector<int64_t>& kept_of(int64_t rank) const;
  /// Rows from member i to member j of the EP group in chunk c, [i * n + j].
  std::vector<double> matrix(const Group& group, int64_t chunk) const;

  const Grid& grid_;
  Group ep_;
  int64_t rank_, experts_, slices_, chunks_, local_;
  std::map<int64_t, const std::vector<int64_t>*> kept_;  ///< by dense-DP coordinate
  std::string signature_;
  int64_t routed_ = 0, dropped_ = 0;
};

}  // namespace moetwin
