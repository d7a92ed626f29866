#pragma once
// Which scenario keys act on a verdict, and what they did in measured runs (docs/diagnose.md).

#include <vector>

#include "analysis/stability/finding.h"
#include "analysis/stability/load_metrics.h"
#include "analysis/stability/oscillation.h"

namespace moetwin {

std::vector<Knob> oscillation_knobs(const LoadMetrics& metrics, const Oscillation& oscillation);
std::vector<Knob> collapse_knobs();
std::vector<Knob> imbalance_knobs(const LoadMetrics& metrics);
std::vector<Knob> rotation_knobs();
std::vector<Knob> divergence_knobs();

}  // namespace moetwin
