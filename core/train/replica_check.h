#pragma once
// Compares what ranks keep copies of, bit by bit: a rank whose weights or optimizer state went
// another way (a broken GPU, a gradient that was not reduced) is named in the step it is seen.

#include <vector>

#include "core/device/communicator.h"
#include "core/parallel/flat_parameters.h"
#include "core/scenario/scenario.h"

namespace moetwin {

class ReplicaCheck {
 public:
  /// `world`: null with one rank, which has nothing to compare.
  ReplicaCheck(const Scenario& scenario, std::vector<FlatGroup>& groups, Communicator* world);

  /// Whether it is asked for after this step; never with numerics none, where there are no values.
  bool due(int64_t step) const;
  /// Reads all this rank keeps to the host and gathers checksums. Ranks that keep the same elements
  /// of a parameter must have the same bytes of them; experts and slices, which legitimately
  /// differ, are compared with their own copies alone. Throws Error(fault) with the parameter and
  /// the ranks that disagree, on the ranks that keep it.
  void run(Context& context, int64_t step);

 private:
  int64_t every_steps_;
  std::vector<FlatGroup>& groups_;
  Communicator* world_;
};

}  // namespace moetwin
