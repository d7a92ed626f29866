#pragma once
// Rebalancing of one layer on one rank: the policy's plans, and the guests that they ask for.

#include <memory>
#include <optional>
#include <utility>

#include "core/moe/rebalancing/guests.h"
#include "core/moe/rebalancing/placement.h"
#include "core/moe/rebalancing/policy.h"

namespace moetwin {

/// What a micro-batch in flight keeps of it.
struct Rebalanced {
  std::shared_ptr<const ExpertPlan> plan;
  std::shared_ptr<Guests> guests;  ///< null: none on any rank, or dropped for recompute
  int64_t step = 0;
  bool last = false;  ///< micro-batch of the step
  ReturningGradients returning;
};

class Rebalancer {
 public:
  /// `ep`: of the token exchange. `micro_batches`: of a rank's step.
  Rebalancer(const RebalancingSetup& setup, Communicator& ep, int64_t micro_batches,
             int64_t experts)
      : policy_(make_policy(setup)),
        always_(setup.always),
        ep_(ep),
        micro_batches_(micro_batches),
        places_(first_places(experts)),
        loads_(static_cast<size_t>(experts), 0) {
    if (always_ && !always_->places.empty()) places_ = always_->places;
  }

  /// Where experts are at home.
  const ExpertPlaces& places() const { return places_; }
  /// Between steps, once what the experts consist of has moved.
  void move(ExpertPlaces places) { places_ = std::move(places); }
  Communicator& ep() const { return ep_; }
  /// Rows by expert in training, of this EP group, since the last call.
  std::vector<double> take_loads() {
    return std::exchange(loads_, std::vector<double>(loads_.size(), 0));
  }
  /// `counts` are by place. In evaluation nothing moves.
  void plan(const GroupCounts& counts, const MicroBatch& batch, Rebalanced& out);
  /// Starts the guests on their way, where they are not there for the whole step. `parameters`: of
  /// the layer's experts.
  void bring(Context& context, const std::vector<Parameter*>& parameters, Rebalanced& at);
  /// Compute has waited for what the dispatch stream got after the guests.
  static void arrived(Rebalanced& at);
  /// After the layer's backward: starts the gradients on their way home when the guests leave.
  void give_back(Context& context, Rebalanced& at);
  void settle(Context& context, Rebalanced& at);

 private:
  std::unique_ptr<RebalancingPolicy> policy_;
  std::shared_ptr<const ExpertPlan> always_;
  Communicator& ep_;
  int64_t micro_batches_, local_ = 0;
  ExpertPlaces places_;
  std::vector<double> loads_;
  std::optional<GuestExchange> exchange_;
  std::shared_ptr<Guests> resident_;  ///< for the step
  int64_t resident_step_ = 0;
};

}  // namespace moetwin
