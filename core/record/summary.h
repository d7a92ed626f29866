#pragma once
// What a run was, on one screen: throughput, where the step went, memory per expert-parallel group,
// balance of every MoE layer, auxiliary losses, verdicts (what seed 001 tells a user to watch).

#include <string>

#include "core/record/bars.h"
#include "core/record/report.h"

namespace moetwin {

/// Lines of at most this many columns.
inline constexpr int kSummaryColumns = 100;

std::string summary(const Report& report, const ScreenStyle& style = {});

}  // namespace moetwin
