#pragma once
// Where the ranks of a process hand in what they did: the record itself, or the way to another
// process that keeps it.

#include "core/record/rank_step.h"

namespace moetwin {

class RunSink {
 public:
  virtual ~RunSink() = default;
  /// Whether every op of this step is asked for (profile_schedule.h). Backend::take_profile at the
  /// end of step s is asked for the detail of what follows: pass it wants_detail(s + 1).
  virtual bool wants_detail(int64_t step) const = 0;
  /// From any thread. Every rank adds its steps in order.
  virtual void add(RankStep step) = 0;
  /// A rank's part of the validation loss after `step` (0: before the first); the rules of
  /// RankStep::ce_sum hold. From any thread; every rank calls it, with zeros where it has nothing.
  virtual void add_validation(int64_t rank, int64_t step, double ce_sum, int64_t tokens) = 0;
};

}  // namespace moetwin
