#pragma once
// GELU (Hendrycks and Gimpel 2016) and its derivative on packets: x Phi(x), or the tanh form.

#include "core/ops/reference/packet.h"

namespace moetwin::reference {

inline constexpr double kSqrtHalf = 0.70710678118654752, kInvSqrtTwoPi = 0.39894228040143268;
inline constexpr double kTanhScale = 0.79788456080286536, kTanhCubic = 0.044715;

template <class C>
inline Packet<C> gelu_of(const Packet<C>& x, bool tanh_form) {
  namespace ei = Eigen::internal;
  const Packet<C> half = set1<C>(C(0.5)), one = set1<C>(1);
  Packet<C> inner;
  if (tanh_form) {
    const Packet<C> cubic = ei::pmadd(ei::pmul(set1<C>(C(kTanhCubic)), ei::pmul(x, x)), x, x);
    inner = tanh_of<C>(ei::pmul(set1<C>(C(kTanhScale)), cubic));
  } else {
    inner = erf_of<C>(ei::pmul(x, set1<C>(C(kSqrtHalf))));
  }
  return ei::pmul(ei::pmul(half, x), ei::padd(one, inner));
}

template <class C>
inline Packet<C> gelu_slope(const Packet<C>& x, bool tanh_form) {
  namespace ei = Eigen::internal;
  const Packet<C> half = set1<C>(C(0.5)), one = set1<C>(1), square = ei::pmul(x, x);
  if (tanh_form) {
    const Packet<C> cubic = ei::pmadd(ei::pmul(set1<C>(C(kTanhCubic)), square), x, x);
    const Packet<C> t = tanh_of<C>(ei::pmul(set1<C>(C(kTanhScale)), cubic));
    const Packet<C> inner =
        ei::pmul(set1<C>(C(kTanhScale)), ei::pmadd(set1<C>(C(3 * kTanhCubic)), square, one));
    const Packet<C> slope =
        ei::pmul(ei::pmul(half, x), ei::pmul(ei::psub(one, ei::pmul(t, t)), inner));
    return ei::pmadd(half, ei::padd(one, t), slope);
  }
  const Packet<C> phi =
      ei::pmul(set1<C>(C(kInvSqrtTwoPi)), exp_of<C>(ei::pmul(set1<C>(C(-0.5)), square)));
  const Packet<C> cdf =
      ei::pmul(half, ei::padd(one, erf_of<C>(ei::pmul(x, set1<C>(C(kSqrtHalf))))));
  return ei::pmadd(x, phi, cdf);
}

}  // namespace moetwin::reference
