#pragma once
// Experts that move to other ranks of their EP group between steps, with master weights and
// optimizer state (rebalancing.kind placement).

#include <vector>

#include "core/parallel/communicators.h"
#include "core/parallel/flat_parameters.h"
#include "core/scenario/scenario.h"
#include "core/train/model.h"

namespace moetwin {

class ExpertMoves {
 public:
  /// Does nothing in scenarios of another kind.
  ExpertMoves(Context& context, const Scenario& scenario, const Grid& grid,
              const Communicators& communicators, std::vector<FlatGroup>& groups, Model& model);
  /// After the update of a step: at the end of an interval its loads, over all copies of the
  /// experts, choose new places. The host waits for those of other copies.
  void after_step(int64_t step);

 private:
  /// [layers][experts]
  std::vector<std::vector<double>> loads() const;
  /// All that a parameter's experts consist of: values, master weights, moments.
  std::vector<Tensor> state_of(const Parameter& parameter) const;

  Context& context_;
  const RebalancingConfig config_;
  PlacementShape shape_;
  Communicator* copies_;  ///< expert-DP; null: there is one copy
  std::vector<FlatGroup>& groups_;
  std::vector<MoeLayer*> layers_;
};

}  // namespace moetwin
