#pragma once
// How far predictions were off when they were last compared with published measurements.

#include <string>
#include <vector>

namespace moetwin {

struct ValidatedError {
  double median = 0;   ///< median absolute relative error of step times; 0: unknown
  std::string source;  ///< "validated.json, moe_training, 75 rows"
};

/// From data/validated.json, what `moetwin validate --json` wrote, in the first of the directories
/// that has it: of MoE or of dense training. Throws Error(configuration) where it is broken.
ValidatedError validated_error(const std::vector<std::string>& directories, bool experts);

}  // namespace moetwin
