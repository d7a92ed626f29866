#pragma once
// Whether the difference of two series of repeated steps is more than their noise.

#include <cstdint>
#include <string>
#include <vector>

namespace moetwin {

/// Steps of one run are no independent draws, so they are taken in blocks longer than their
/// correlation; the mean of the difference is judged by the scatter of its block means.
struct NoiseTest {
  int64_t steps = 0, blocks = 0, block_steps = 0;
  double correlation_steps = 1;  ///< 1 + 2 sum of autocorrelations (until the first negative pair,
                                 ///< or of a first-order process at the upper end of its error)
  double rho = 0;                ///< autocorrelation at lag 1, from 0 on, without its bias
  double difference = 0;         ///< mean of b - a
  double low = 0, high = 0;      ///< 95% interval: block bootstrap, percentiles
  double p = 1;                  ///< two-sided, Student's t of the block means
  bool judged = false;
  std::string why_not;  ///< when not judged
};

/// `a` and `b` step by step; steps where either is NaN are left out. `stream` separates the draws
/// of one figure from those of another; the result is a function of the arguments alone.
/// Not judged: fewer than four blocks, unless the difference is ten times the scatter of all steps.
/// `least_rho`: the autocorrelation at lag 1 is taken to be at
/// least this, as figures of one run have much in common and a short series hides its own.
NoiseTest noise_test(const std::vector<double>& a, const std::vector<double>& b, uint64_t stream,
                     double least_rho = 0);

/// Holm's step-down correction: which hypotheses fall at family-wise level `level`.
std::vector<bool> holm(const std::vector<double>& p, double level = 0.05);

/// P(|T| >= t) for Student's t with `degrees` degrees of freedom.
double student_two_sided(double t, double degrees);

}  // namespace moetwin
