#pragma once
// Device memory of a pipeline stage's fullest rank, told apart as publications do.

#include <cstdint>
#include <vector>

#include "core/record/report.h"

namespace moetwin {

/// Bytes of tensors.
struct StageMemory {
  int64_t peak = 0;
  int64_t states = 0;     ///< parameters, gradients and optimizer that stay from step to step
  int64_t gradients = 0;  ///< of these
  int64_t optimizer = 0;
  int64_t kept = 0;  ///< most activations that wait for their backward between passes
};

/// A step as the estimator tells it.
struct StepEstimate {
  Report report;
  std::vector<StageMemory> stages;
};

}  // namespace moetwin
