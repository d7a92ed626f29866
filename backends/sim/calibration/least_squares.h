#pragma once
// Small nonlinear least squares: the fit of a handful of positive figures.

#include <functional>
#include <vector>

namespace moetwin {

/// Residuals of a model at `parameters`; as many at every call.
using Residuals = std::function<std::vector<double>(const std::vector<double>& parameters)>;

/// Parameters near `start` that make the sum of squared residuals small: Levenberg-Marquardt on the
/// parameters' logarithms (all are positive), derivatives by differences. Large residuals count
/// less than by their square (Huber, from `outlier` on), so that a bad measurement does not decide.
/// What no residual depends on stays at its start; what only a combination is known of moves least:
/// a parameter that is e times its start counts as a residual of `pull`.
std::vector<double> fit_positive(const Residuals& residuals, const std::vector<double>& start,
                                 double outlier, double pull = 1e-3);

struct Line {
  double constant = 0, slope = 0;
};
/// y = constant + slope x with the least squared *relative* residuals; neither is below 0. One
/// point: through the origin. No points: zeros.
Line fit_line(const std::vector<double>& x, const std::vector<double>& y);

}  // namespace moetwin
