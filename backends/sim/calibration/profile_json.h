#pragma once
// A profile's file with some of its figures replaced.

#include <string>
#include <vector>

#include "backends/sim/calibration/fit.h"

namespace moetwin {

/// `base_text`: the file that the base profile was read from; comments are lost. Figures take the
/// place of those at their keys or are added; `name` is the GPU's, empty: as it was. The result is
/// a file that parse_cluster_profile reads.
std::string profile_text(const std::string& base_text, const std::string& description,
                         const std::string& name, const std::vector<FittedFigure>& figures);

}  // namespace moetwin
