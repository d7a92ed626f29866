#include "core/moe/portable_math.h"

#include <cmath>

namespace moetwin {

double portable_exp(double x) {
  if (x < -700) return 0;
  // x = n ln 2 + r, |r| <= ln 2 / 2: the series to r^15 leaves less than 1e-18. ln 2 in two parts,
  // so that r is exact enough.
  const double n = std::floor(x * 1.4426950408889634 + 0.5);
  const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double sum = 1;
  for (int i = 15; i >= 1; --i) sum = 1 + sum * r / i;
  return std::ldexp(sum, static_cast<int>(n));
}

double portable_cos_turn(int64_t n, int64_t d) {
  // Folded in integers to an angle of at most an eighth of a turn, where the series are short.
  n *= 8, d *= 8;
  if (2 * n > d) n = d - n;      // cos is even
  const bool minus = 4 * n > d;  // past a quarter: cos(pi - a) = -cos a
  if (minus) n = d / 2 - n;
  const bool sine = 8 * n > d;  // past an eighth: cos(pi/2 - a) = sin a
  if (sine) n = d / 4 - n;
  const double a = 6.283185307179586 * static_cast<double>(n) / static_cast<double>(d);
  const double z = a * a;
  double sum = 1;
  if (sine)
    for (int i = 8; i >= 1; --i) sum = 1 - sum * z / ((2 * i) * (2 * i + 1));
  else
    for (int i = 9; i >= 1; --i) sum = 1 - sum * z / ((2 * i - 1) * (2 * i));
  const double value = sine ? a * sum : sum;
  return minus ? -value : value;
}

}  // namespace moetwin
