#pragma once
// Time and memory of a training step by arithmetic: the core's op lists of each kind of layer and
// of what surrounds them, recorded once, multiplied by layers, micro-batches and stages. No
// SimGrid, no processes: as many estimates in one process as wanted.
//
// What it takes for granted: the ranks of a stage do the same at the same time, so a collective has
// the ports to itself and its like; in an exchange of tokens all wait for the slowest rank of the
// expert-parallel group. tests/backends/sim/representative holds it to the fluid network.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/sim/cluster/profile.h"
#include "backends/sim/representative/figures.h"
#include "core/record/step_parts.h"
#include "core/scenario/scenario.h"

namespace moetwin {

struct StageEstimate {
  StepParts parts;         ///< of its slowest rank at each exchange; they sum to the step
  int64_t peak_bytes = 0;  ///< of its fullest rank
  ClassBytes classes{};    ///< at that moment
  ClassBytes lasting{};    ///< what stays from step to step
  int64_t kept_bytes = 0;  ///< most activations that wait for their backward between passes
  int64_t host_syncs = 0;
  int64_t communicator_bytes = 0;  ///< buffers of the collective library, in no class
  std::vector<Sent> sent;          ///< by one rank, mean over ranks; only where asked for
};

struct Estimate {
  double step_seconds = 0;
  double tokens_per_second = 0, samples_per_second = 0;
  double mfu = 0;                            ///< semantics 7
  StepParts parts;                           ///< mean over stages
  int64_t peak_bytes = 0, memory_bytes = 0;  ///< of the fullest rank; what a GPU has
  int64_t context_bytes = 0;                 ///< of the library, the framework and its workspaces
  int64_t device_bytes = 0;                  ///< most of a rank: tensors, communicators, context
  int64_t lasting_bytes = 0;                 ///< of its tensors: what stays from step to step
  bool fits = false;                         ///< device_bytes are not more than memory_bytes
  int64_t host_bytes = 0, host_syncs = 0;
  std::vector<StageEstimate> stages;
  double dropped_share = 0;  ///< of assignments, over capacity
};

struct EstimateOptions {
  int64_t step = 1;  ///< whose routing it is
  bool traffic = false;
  /// Runs all micro-batches, instead of a few that show what the others cost.
  bool every_micro_batch = false;
};

/// Keeps what it has recorded for the next scenario. Not for several threads at once.
class Estimator {
 public:
  /// `references`: of core/ops/isa.h, for ops that count.
  Estimator(ClusterProfile profile, References references);
  ~Estimator();
  /// Of a scenario whose rules hold, as with numerics none. Throws Error(configuration) where the
  /// layout or the routing cannot be had.
  Estimate estimate(const Scenario& scenario, const EstimateOptions& options = {});

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

/// One estimate, with nothing kept.
Estimate estimate(const Scenario& scenario, const ClusterProfile& profile);

}  // namespace moetwin
