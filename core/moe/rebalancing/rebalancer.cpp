#include "core/moe/rebalancing/rebalancer.h"

namespace moetwin {

void Rebalancer::plan(const GroupCounts& counts, const MicroBatch& batch, Rebalanced& out) {
  if (always_)
    out.plan = always_;
  else
    out.plan = std::make_shared<const ExpertPlan>(batch.training ? policy_->plan(counts, batch.step)
                                                                 : ExpertPlan::nothing(counts));
  for (size_t e = 0; batch.training && e < places_.size(); ++e)
    loads_[e] += static_cast<double>(counts.of(places_[e]));
  out.step = batch.step;
  out.last = batch.index + 1 == micro_batches_;
  local_ = counts.local_experts();
}

void Rebalancer::bring(Context& context, const std::vector<Parameter*>& parameters,
                       Rebalanced& at) {
  if (!at.plan->moves()) return;
  if (!exchange_) exchange_.emplace(ep_, parameters);
  if (at.plan->for_the_step && resident_ && resident_step_ == at.step) {
    at.guests = resident_;
    return;
  }
  at.guests = exchange_->fetch(context, *at.plan, local_);
  if (!at.plan->for_the_step) return;
  resident_ = at.guests;
  resident_step_ = at.step;
}

void Rebalancer::arrived(Rebalanced& at) {
  if (at.guests) at.guests->packed.clear();
}

void Rebalancer::give_back(Context& context, Rebalanced& at) {
  if (!at.guests || (at.plan->for_the_step && !at.last)) return;
  at.returning = exchange_->give_back(context, *at.plan, local_, *at.guests);
}

void Rebalancer::settle(Context& context, Rebalanced& at) {
  if (!at.guests) return;
  if (!at.plan->for_the_step || at.last) {
    GuestExchange::settle(context, at.returning);
    resident_.reset();
  }
  at.guests.reset();
}

}  // namespace moetwin
