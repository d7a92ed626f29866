#pragma once
// A fit as a user reads it.

#include <json/value.h>

#include <string>

#include "backends/sim/calibration/fit.h"

namespace moetwin {

/// Figures beside the base's, residuals by family, the line of each collective, what was left.
std::string fit_text(const FitResult& fit, const ClusterProfile& base,
                     const Measurements& measurements);
/// The same, with every residual.
Json::Value fit_json(const FitResult& fit, const ClusterProfile& base);

}  // namespace moetwin
