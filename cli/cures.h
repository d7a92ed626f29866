#pragma once
// `moetwin diagnose RUN --cures`: what rebalancing would gain the run.

#include <json/value.h>

#include <iosfwd>
#include <vector>

#include "analysis/rebalancing/cures.h"
#include "analysis/result/run.h"

namespace moetwin {

/// From the routing that the run recorded and its median step, over a few of its steps. Throws
/// Error(configuration) where the run has no scenario, no expert-parallel ranks, or a cure already.
std::vector<Cure> cures_of(const Run& run);

void print_cures(std::ostream& out, const std::vector<Cure>& cures);
Json::Value cures_json(const std::vector<Cure>& cures);

}  // namespace moetwin
