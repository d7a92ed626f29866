#pragma once
// Weights of a token's chosen experts: their scores, or the scores over their p-norm.

#include <cmath>
#include <cstdint>

namespace moetwin::reference {

/// The p-norm of k non-negative scores, taken relative to the largest, so that tiny scores (1e-25)
/// neither underflow nor need an epsilon, and one score alone is its own norm exactly.
template <class C>
C score_norm(const C* chosen, int64_t k, double p) {
  C top = 0;
  for (int64_t j = 0; j < k; ++j) top = chosen[j] > top ? chosen[j] : top;
  if (k == 1 || !(top > 0)) return top;
  C sum = 0;
  for (int64_t j = 0; j < k; ++j) {
    const C r = chosen[j] / top;
    sum += p == 1 ? r : p == 2 ? r * r : static_cast<C>(std::pow(r, static_cast<C>(p)));
  }
  if (p == 1) return top * sum;
  return top * (p == 2 ? std::sqrt(sum) : static_cast<C>(std::pow(sum, static_cast<C>(1 / p))));
}

}  // namespace moetwin::reference
