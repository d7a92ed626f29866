#pragma once
// CUDA's small vector types.

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
};
struct uint3 {
  unsigned x, y, z;
};

#define MOETWIN_VECTORS(T, base)                                        \
  struct alignas(2 * sizeof(T)) base##2 {                               \
    T x, y;                                                             \
  };                                                                    \
  struct base##3 {                                                      \
    T x, y, z;                                                          \
  };                                                                    \
  struct alignas(sizeof(T) == 8 ? 16 : 4 * sizeof(T)) base##4 {         \
    T x, y, z, w;                                                       \
  };                                                                    \
  constexpr base##2 make_##base##2(T x, T y) { return {x, y}; }         \
  constexpr base##3 make_##base##3(T x, T y, T z) { return {x, y, z}; } \
  constexpr base##4 make_##base##4(T x, T y, T z, T w) { return {x, y, z, w}; }

MOETWIN_VECTORS(float, float)
MOETWIN_VECTORS(int, int)
MOETWIN_VECTORS(double, double)
MOETWIN_VECTORS(long long, longlong)
#undef MOETWIN_VECTORS

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
constexpr uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
constexpr uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
