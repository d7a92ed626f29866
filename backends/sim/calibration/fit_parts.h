#pragma once
// The parts of a fit. Only backends/sim/calibration/fit*.cpp include this.

#include "backends/sim/calibration/fit.h"

namespace moetwin {

/// Residuals beyond this count by their size, not by its square.
inline constexpr double kOutlier = 0.1;

void fit_kernels(const Measurements& measurements, const std::string& from, FitResult& result);
void fit_collectives(const Measurements& measurements, const std::string& from,
                     const std::vector<std::string>& only, FitResult& result);
void fit_copies(const Measurements& measurements, const std::string& from, FitResult& result);

}  // namespace moetwin
