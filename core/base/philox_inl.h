#pragma once
// Bodies of the draws that need more than integers; see philox.h for what each promises.

#include <cmath>
#include <cstring>

namespace moetwin {

MOETWIN_BOTH inline double portable_log(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull;
  double m;
  std::memcpy(&m, &bits, sizeof m);
  if (m > 1.4142135623730951) m *= 0.5, ++exponent;
  // log m = 2 atanh(s), s = (m-1)/(m+1), |s| < 0.1716: the series to s^19 leaves less than 1e-15.
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double series = 1.0 / 19;
  for (int n = 17; n >= 1; n -= 2) series = series * z + 1.0 / n;
  return exponent * 0.6931471805599453 + 2.0 * s * series;
}

// Inverse normal by Acklam's rational approximation (relative error 1.15e-9), which is far below
// one float ulp of spread: a centre and two tails.
MOETWIN_BOTH inline double normal_probability(uint32_t word) {
  return (static_cast<double>(word) + 0.5) * (1.0 / 4294967296.0);
}

MOETWIN_BOTH inline bool normal_is_tail(double p) { return p < 0.02425 || p > 1 - 0.02425; }

MOETWIN_BOTH inline double normal_centre(double p) {
  const double q = p - 0.5, r = q * q;
  const double num =
      ((((-3.969683028665376e+01 * r + 2.209460984245205e+02) * r - 2.759285104469687e+02) * r +
        1.383577518672690e+02) *
           r -
       3.066479806614716e+01) *
          r +
      2.506628277459239e+00;
  const double den =
      ((((-5.447609879822406e+01 * r + 1.615858368580409e+02) * r - 1.556989798598866e+02) * r +
        6.680131188771972e+01) *
           r -
       1.328068155288572e+01) *
          r +
      1.0;
  return num * q / den;
}

MOETWIN_BOTH inline double normal_tail(double p) {
  const double q = std::sqrt(-2.0 * portable_log(p < 0.5 ? p : 1.0 - p));
  const double num =
      ((((-7.784894002430293e-03 * q - 3.223964580411365e-01) * q - 2.400758277161838e+00) * q -
        2.549732539343734e+00) *
           q +
       4.374664141464968e+00) *
          q +
      2.938163982698783e+00;
  const double den =
      (((7.784695709041462e-03 * q + 3.224671290700398e-01) * q + 2.445134137142996e+00) * q +
       3.754408661907416e+00) *
          q +
      1.0;
  return p < 0.5 ? num / den : -num / den;
}

MOETWIN_BOTH inline double philox_normal(const PhiloxKey& key, uint64_t index) {
  const double p = normal_probability(philox_word(key, index));
  return normal_is_tail(p) ? normal_tail(p) : normal_centre(p);
}

MOETWIN_BOTH inline double philox_gumbel(const PhiloxKey& key, uint64_t index) {
  return -portable_log(-portable_log(static_cast<double>(philox_uniform(key, index))));
}

}  // namespace moetwin
