#pragma once
// Functions whose bits are the same on every machine: only +, *, / and exponent bits, as in
// core/base/philox.h.

#include <cstdint>

namespace moetwin {

/// e^x to a relative error below 1e-14; 0 below -700, x at most 700.
double portable_exp(double x);

/// cos(2 pi n / d), exactly -1, 0 and 1 where it is; 0 <= n < d. Absolute error below 1e-15.
double portable_cos_turn(int64_t n, int64_t d);

}  // namespace moetwin
