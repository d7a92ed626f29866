#pragma once
// The host's body of backends/cuda/device.cuh: same names, same meaning, every misuse an error.

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/cuda_on_host/kernels/block.h"

namespace moetwin {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) {
  const uint32_t wide = static_cast<uint32_t>(x.bits) << 16;
  float y;
  std::memcpy(&y, &wide, sizeof y);
  return y;
}
inline float to_float(f16 x) {
  _Float16 h;
  std::memcpy(&h, &x.bits, sizeof h);
  return static_cast<float>(h);
}
template <class T>
T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline bf16 from_float<bf16>(float x) {
  uint32_t wide;
  std::memcpy(&wide, &x, sizeof wide);
  if ((wide & 0x7fffffffu) > 0x7f800000u) return {0x7fff};  // what the GPU makes of any NaN
  return {static_cast<uint16_t>((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16)};
}
template <>
inline f16 from_float<f16>(float x) {
  const _Float16 h = static_cast<_Float16>(x);
  f16 y;
  std::memcpy(&y.bits, &h, sizeof h);
  return y;
}

inline int thread_id() { return emulated::running->thread; }
inline int thread_count() { return emulated::running->threads; }
inline int lane_id() { return emulated::running->thread % emulated::kWarp; }
inline int warp_id() { return emulated::running->thread / emulated::kWarp; }
inline int warp_count() { return emulated::running->threads / emulated::kWarp; }
inline int64_t block_id() { return emulated::running->block; }
inline int64_t block_count() { return emulated::running->blocks; }
inline unsigned char* shared_memory() { return emulated::running->shared; }

inline void sync_warp(emulated::Site site = emulated::Site::here()) {
  emulated::meet(emulated::Scope::warp, "sync_warp", site, nullptr, nullptr);
}
inline void sync_block(emulated::Site site = emulated::Site::here()) {
  emulated::meet(emulated::Scope::block, "sync_block", site, nullptr, nullptr);
}

namespace emulated {

/// Sums in the order of the butterfly, as the GPU's shuffles do.
template <class T, class F>
T butterfly(void* const* brought, F join) {
  T level[kWarp];
  for (int i = 0; i < kWarp; ++i) level[i] = *static_cast<T*>(brought[i]);
  for (int width = kWarp / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) level[i] = join(level[i], level[i + width]);
  return level[0];
}
struct Plus {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Greater {
  template <class T>
  T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};
template <class T, class F>
void join_warp(void* const* brought, int count) {
  const T joined = butterfly<T>(brought, F{});
  for (int i = 0; i < count; ++i) *static_cast<T*>(brought[i]) = joined;
}
template <class T, class F>
void join_block(void* const* brought, int count) {
  const int warps = count / kWarp;
  T of_warp[kWarp];
  void* slots[kWarp];
  for (int w = 0; w < kWarp; ++w) {
    of_warp[w] = w < warps ? butterfly<T>(brought + w * kWarp, F{}) : of_warp[0];
    slots[w] = &of_warp[w];
  }
  // Warps that do not exist bring the neutral element: 0 to sums, warp 0's own value to maxima.
  if constexpr (std::is_same_v<F, Plus>)
    for (int w = warps; w < kWarp; ++w) of_warp[w] = T{};
  const T joined = butterfly<T>(slots, F{});
  for (int i = 0; i < count; ++i) *static_cast<T*>(brought[i]) = joined;
}

template <class T>
struct Shuffle {
  T mine;
  int from;
  T got;
};

}  // namespace emulated

template <class T>
T warp_sum(T x, emulated::Site site = emulated::Site::here()) {
  emulated::meet(emulated::Scope::warp, "warp_sum", site, &x,
                 emulated::join_warp<T, emulated::Plus>);
  return x;
}
template <class T>
T warp_max(T x, emulated::Site site = emulated::Site::here()) {
  emulated::meet(emulated::Scope::warp, "warp_max", site, &x,
                 emulated::join_warp<T, emulated::Greater>);
  return x;
}
template <class T>
T block_sum(T x, emulated::Site site = emulated::Site::here()) {
  emulated::meet(emulated::Scope::block, "block_sum", site, &x,
                 emulated::join_block<T, emulated::Plus>);
  return x;
}
template <class T>
T block_max(T x, emulated::Site site = emulated::Site::here()) {
  emulated::meet(emulated::Scope::block, "block_max", site, &x,
                 emulated::join_block<T, emulated::Greater>);
  return x;
}

template <class T>
T warp_shuffle(T x, int from, emulated::Site site = emulated::Site::here()) {
  if (from < 0 || from >= emulated::kWarp) emulated::fail("warp_shuffle from no lane");
  emulated::Shuffle<T> s{x, from, x};
  emulated::meet(emulated::Scope::warp, "warp_shuffle", site, &s,
                 [](void* const* brought, int count) {
                   for (int i = 0; i < count; ++i) {
                     auto* to = static_cast<emulated::Shuffle<T>*>(brought[i]);
                     to->got = static_cast<emulated::Shuffle<T>*>(brought[to->from])->mine;
                   }
                 });
  return s.got;
}
inline uint32_t warp_ballot(bool x, emulated::Site site = emulated::Site::here()) {
  uint32_t bits = x;
  emulated::meet(emulated::Scope::warp, "warp_ballot", site, &bits,
                 [](void* const* brought, int count) {
                   uint32_t all = 0;
                   for (int i = 0; i < count; ++i) all |= *static_cast<uint32_t*>(brought[i]) << i;
                   for (int i = 0; i < count; ++i) *static_cast<uint32_t*>(brought[i]) = all;
                 });
  return bits;
}
inline uint32_t warp_match(int x, emulated::Site site = emulated::Site::here()) {
  struct Match {
    int value;
    uint32_t mask;
  } match{x, 0};
  emulated::meet(emulated::Scope::warp, "warp_match", site, &match,
                 [](void* const* brought, int count) {
                   for (int i = 0; i < count; ++i) {
                     auto* m = static_cast<Match*>(brought[i]);
                     m->mask = 0;
                     for (int j = 0; j < count; ++j)
                       if (static_cast<Match*>(brought[j])->value == m->value)
                         m->mask |= uint32_t{1} << j;
                   }
                 });
  return match.mask;
}

/// Sum of the values of lower threads; `total` gets the sum of all.
inline int block_exclusive_sum(int x, int& total, emulated::Site site = emulated::Site::here()) {
  struct Scan {
    int value, before, total;
  } scan{x, 0, 0};
  emulated::meet(emulated::Scope::block, "block_exclusive_sum", site, &scan,
                 [](void* const* brought, int count) {
                   int sum = 0;
                   for (int i = 0; i < count; ++i) {
                     auto* s = static_cast<Scan*>(brought[i]);
                     s->before = sum;
                     sum += s->value;
                   }
                   for (int i = 0; i < count; ++i) static_cast<Scan*>(brought[i])->total = sum;
                 });
  total = scan.total;
  return scan.before;
}

/// One rounding on the GPU, two here: a library call would cost more than all else.
inline float fused(float a, float b, float c) { return a * b + c; }

inline int count_bits(uint32_t x) { return __builtin_popcount(x); }
/// Number of the lowest set bit; -1: none.
inline int lowest_bit(uint32_t x) { return __builtin_ffs(static_cast<int>(x)) - 1; }
inline uint32_t float_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

/// Integers only: their sums do not depend on the order.
inline int atomic_add(int* p, int x) {
  const int before = *p;
  *p += x;
  return before;
}
inline int64_t atomic_add(int64_t* p, int64_t x) {
  const int64_t before = *p;
  *p += x;
  return before;
}
inline void atomic_min(int64_t* p, int64_t x) {
  if (x < *p) *p = x;
}

}  // namespace moetwin

#include "tests/cuda_on_host/kernels/copy.h"
#include "tests/cuda_on_host/kernels/tile.h"
