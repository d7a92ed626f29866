#pragma once
// steps.csv and the routing metrics as JSON lines, one object per step, for tools that read these.

#include <string>

#include "analysis/result/run.h"

namespace moetwin {

/// {"step": 1, "loss": 5.4, ..., "layers": [{"layer": 1, "load_cv": ..., "counts": [...]}]}; what
/// is unknown is null.
std::string json_lines(const Run& run);

}  // namespace moetwin
