#pragma once
// Vectors of one instruction set, through Eigen's packets. Everything that uses them gives results
// that do not depend on addresses: loads are unaligned, tails are padded packets, sums have a fixed
// order of lanes. (Eigen's own reductions and array loops peel to an aligned address first, so
// their bits change with it.)

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <unsupported/Eigen/SpecialFunctions>

namespace moetwin::reference {

template <class C>
using Packet = typename Eigen::internal::packet_traits<C>::type;
template <class C>
inline constexpr int kLanes = Eigen::internal::packet_traits<C>::size;

template <class C>
inline Packet<C> load(const C* p) {
  return Eigen::internal::ploadu<Packet<C>>(p);
}
template <class C>
inline void store(C* p, const Packet<C>& v) {
  Eigen::internal::pstoreu(p, v);
}
template <class C>
inline Packet<C> set1(C x) {
  return Eigen::internal::pset1<Packet<C>>(x);
}
template <class C>
inline Packet<C> load_part(const C* p, int64_t n, C fill) {
  alignas(64) C lane[kLanes<C>];
  for (int i = 0; i < kLanes<C>; ++i) lane[i] = i < n ? p[i] : fill;
  return load<C>(lane);
}
template <class C>
inline void store_part(C* p, const Packet<C>& v, int64_t n) {
  alignas(64) C lane[kLanes<C>];
  store<C>(lane, v);
  for (int i = 0; i < n; ++i) p[i] = lane[i];
}

/// Calls f(first, lanes in use) for every packet of n elements.
template <class C, class F>
inline void for_packets(int64_t n, F f) {
  int64_t i = 0;
  for (; i + kLanes<C> <= n; i += kLanes<C>) f(i, int64_t{kLanes<C>});
  if (i < n) f(i, n - i);
}
template <class C>
inline Packet<C> load_n(const C* p, int64_t used, C fill = 0) {
  return used == kLanes<C> ? load<C>(p) : load_part<C>(p, used, fill);
}
template <class C>
inline void store_n(C* p, const Packet<C>& v, int64_t used) {
  if (used == kLanes<C>)
    store<C>(p, v);
  else
    store_part<C>(p, v, used);
}

template <class C>
inline C lane_sum(const Packet<C>& v) {
  alignas(64) C lane[kLanes<C>];
  store<C>(lane, v);
  for (int half = kLanes<C> / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
}

namespace packet_detail {
template <class C, double (*f)(double)>
inline Packet<C> by_lane(const Packet<C>& x) {
  alignas(64) C lane[kLanes<C>];
  store<C>(lane, x);
  for (C& l : lane) l = f(l);
  return load<C>(lane);
}
}  // namespace packet_detail

/// exp with 0 below the smallest normal number and NaN for NaN (Eigen's clamps both away).
template <class C>
inline Packet<C> exp_of(const Packet<C>& x) {
  namespace ei = Eigen::internal;
  const Packet<C> low = set1<C>(std::is_same_v<C, float> ? C(-87.3) : C(-708.3));
  const Packet<C> y = ei::pselect(ei::pcmp_lt(x, low), set1<C>(0), ei::pexp(x));
  return ei::pselect(ei::pcmp_eq(x, x), y, x);
}
template <class C>
inline Packet<C> tanh_of(const Packet<C>& x) {
  if constexpr (std::is_same_v<C, float>)
    return Eigen::internal::ptanh(x);
  else
    return packet_detail::by_lane<C, std::tanh>(x);
}
template <class C>
inline Packet<C> erf_of(const Packet<C>& x) {
  if constexpr (std::is_same_v<C, float>)
    return Eigen::internal::generic_fast_erf_float(x);
  else
    return packet_detail::by_lane<C, std::erf>(x);
}

/// Sum of f(packet at i, lanes) over n elements in a fixed order; f must give 0 in unused lanes.
template <class C, class F>
inline C packet_sum(int64_t n, F f) {
  namespace ei = Eigen::internal;
  Packet<C> sum[4] = {set1<C>(0), set1<C>(0), set1<C>(0), set1<C>(0)};
  int64_t i = 0;
  for (; i + 4 * kLanes<C> <= n; i += 4 * kLanes<C>)
    for (int u = 0; u < 4; ++u) sum[u] = ei::padd(sum[u], f(i + u * kLanes<C>, int64_t{kLanes<C>}));
  for (int u = 0; i < n; i += kLanes<C>, ++u)
    sum[u] = ei::padd(sum[u], f(i, std::min<int64_t>(kLanes<C>, n - i)));
  return lane_sum<C>(ei::padd(ei::padd(sum[0], sum[1]), ei::padd(sum[2], sum[3])));
}
template <class C>
inline C sum_of(const C* x, int64_t n) {
  return packet_sum<C>(n, [x](int64_t i, int64_t used) { return load_n<C>(x + i, used); });
}
template <class C>
inline C dot(const C* x, const C* y, int64_t n) {
  return packet_sum<C>(n, [x, y](int64_t i, int64_t used) {
    return Eigen::internal::pmul(load_n<C>(x + i, used), load_n<C>(y + i, used));
  });
}
/// The largest of n >= 1 elements; NaN is not looked for.
template <class C>
inline C max_of(const C* x, int64_t n) {
  const C none = -std::numeric_limits<C>::infinity();
  Packet<C> best = set1<C>(none);
  for_packets<C>(n, [&](int64_t i, int64_t used) {
    best = Eigen::internal::pmax(best, load_n<C>(x + i, used, none));
  });
  alignas(64) C lane[kLanes<C>];
  store<C>(lane, best);
  return *std::max_element(lane, lane + kLanes<C>);
}
/// y = exp(scale * x - shift); returns the sum. scale > 0; y may be x.
template <class C>
inline C exp_shifted(const C* x, C* y, int64_t n, C scale, C shift) {
  namespace ei = Eigen::internal;
  const Packet<C> s = set1<C>(scale), t = set1<C>(-shift);
  return packet_sum<C>(n, [&](int64_t i, int64_t used) {
    const Packet<C> in = load_n<C>(x + i, used, -std::numeric_limits<C>::infinity());
    const Packet<C> e = exp_of<C>(ei::pmadd(in, s, t));
    store_n<C>(y + i, e, used);
    return e;
  });
}

}  // namespace moetwin::reference
