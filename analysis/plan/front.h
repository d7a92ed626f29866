#pragma once
// Which results of a plan others make superfluous.

#include <cstdint>
#include <vector>

#include "analysis/plan/result.h"

namespace moetwin {

/// Points that no other beats in throughput, memory and dropped share at once, in their order.
/// Memory of up to `ample_bytes` counts as equal.
std::vector<PlanResult> pareto_front(const std::vector<PlanResult>& fitting, int64_t ample_bytes);

/// Whether one of `found` is as fast as that, with as little memory and as little dropped.
bool is_matched(const std::vector<PlanResult>& found, double tokens_per_second, double bytes,
                double dropped_share, int64_t ample_bytes);

}  // namespace moetwin
