#pragma once
// Experts of other ranks that a rank works on for a while: their weights come from home, their
// gradients go back there and are added to those of the expert's own rank, which alone keeps
// optimizer state. So an expert trains the same, wherever its rows were worked on.

#include <memory>
#include <vector>

#include "core/device/communicator.h"
#include "core/moe/rebalancing/plan.h"
#include "core/nn/context.h"
#include "core/nn/parameter.h"

namespace moetwin {

/// What a rank has of its guests: by parameter of the layer's experts, [guests, ...].
struct Guests {
  std::vector<Tensor> values, gradients;
  std::vector<Tensor> packed;  ///< this rank's experts as they leave, until then
  Event arrived;               ///< of the values
};

/// Gradients on their way home.
struct ReturningGradients {
  struct Part {
    Tensor from, to;  ///< of one expert and parameter: is added to
  };
  std::vector<Part> parts;
  std::vector<Tensor> under_way;  ///< memory that the dispatch stream still uses
  Event arrived;
};

/// One layer's exchange over its EP group, on the dispatch stream. Every rank of the group calls
/// for every plan that moves, with or without guests of its own. Experts at every rank are
/// broadcast and their gradients summed by an all-reduce; others go from rank to rank.
class GuestExchange {
 public:
  /// `parameters`: of the layer's experts on this rank, [local experts, ...] each.
  GuestExchange(Communicator& ep, std::vector<Parameter*> parameters)
      : ep_(ep), parameters_(std::move(parameters)) {}

  /// Starts the weights on their way; the gradients begin at zero.
  std::shared_ptr<Guests> fetch(Context& context, const ExpertPlan& plan, int64_t local) const;
  /// Starts the gradients on their way home.
  ReturningGradients give_back(Context& context, const ExpertPlan& plan, int64_t local,
                               const Guests& guests) const;
  /// Compute waits for them and adds them.
  static void settle(Context& context, ReturningGradients& returning);

 private:
  std::vector<int64_t> mine(const ExpertPlan& plan) const {
    return plan.guests[static_cast<size_t>(ep_.rank())];
  }
  void send_weights(Context& context, const ExpertPlan& plan, int64_t local, Guests& guests,
                    std::vector<Tensor>& packed) const;

  Communicator& ep_;
  std::vector<Parameter*> parameters_;
};

}  // namespace moetwin
