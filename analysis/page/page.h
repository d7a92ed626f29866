#pragma once
// report.html: one file with everything in it, that opens without a network.

#include <string>
#include <vector>

#include "analysis/result/run.h"

namespace moetwin {

/// The page of one run, or of several with a comparison first. The same runs give the same bytes.
std::string report_page(const std::vector<Run>& runs);

/// Writes DIR/report.html of the run in `directory` and returns its path. What a run calls when its
/// other files are written.
std::string write_report_page(const std::string& directory);

}  // namespace moetwin
