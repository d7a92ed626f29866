#pragma once
// The 16x16 matrix tile of a warp. Lane 0 holds and computes all of it; the other lanes only take
// part. A GPU spreads it over the lanes, so what a kernel may rely on is the same: shared memory
// that was written before a barrier.

#include <cstdint>

#include "tests/cuda_on_host/kernels/block.h"

namespace moetwin {

inline constexpr int kTile = 16;

namespace emulated {
inline void check_tile(const void* p, int ld, size_t element) {
  if (reinterpret_cast<uintptr_t>(p) % 32 != 0)
    fail("loads or stores a matrix tile at an address that is not aligned to 32 bytes");
  if (static_cast<size_t>(ld) * element % 16 != 0)
    fail("loads or stores a matrix tile with rows that are not multiples of 16 bytes apart");
}
}  // namespace emulated

/// Left (A) or right (B) operand. `transposed`: element (i,j) is p[j * ld + i].
template <class T, bool transposed = false>
struct TileOperand {
  float v[kTile * kTile];
  void load(const T* p, int ld) {
    emulated::check_tile(p, ld, sizeof(T));
    if (lane_id() != 0) return;
    for (int i = 0; i < kTile; ++i)
      for (int j = 0; j < kTile; ++j)
        v[i * kTile + j] = to_float(transposed ? p[j * ld + i] : p[i * ld + j]);
  }
};
template <class T, bool transposed = false>
struct TileA : TileOperand<T, transposed> {};
template <class T, bool transposed = false>
struct TileB : TileOperand<T, transposed> {};

/// The fp32 sum.
struct TileSum {
  float v[kTile * kTile];
  void clear() {
    if (lane_id() != 0) return;
    for (float& x : v) x = 0;
  }
  void store(float* p, int ld) const {
    emulated::check_tile(p, ld, sizeof(float));
    if (lane_id() != 0) return;
    for (int i = 0; i < kTile; ++i)
      for (int j = 0; j < kTile; ++j) p[i * ld + j] = v[i * kTile + j];
  }
};

template <class T, bool ta, bool tb>
void multiply_add(TileSum& c, const TileA<T, ta>& a, const TileB<T, tb>& b) {
  if (lane_id() != 0) return;
  for (int i = 0; i < kTile; ++i)
    for (int k = 0; k < kTile; ++k)
      for (int j = 0; j < kTile; ++j) c.v[i * kTile + j] += a.v[i * kTile + k] * b.v[k * kTile + j];
}

/// For each element its row in the tile: found out once per kernel, since the GPU does not say how
/// it spreads a tile.
struct TileRows {
  /// `scratch`: 256 floats of shared memory, of this warp alone.
  void find(float* scratch) { emulated::check_tile(scratch, kTile, sizeof(float)); }
};
/// Multiplies row i by factors[i].
inline void scale_rows(TileSum& c, const TileRows&, const float* factors) {
  if (lane_id() != 0) return;
  for (int i = 0; i < kTile; ++i)
    for (int j = 0; j < kTile; ++j) c.v[i * kTile + j] *= factors[i];
}

}  // namespace moetwin
