#pragma once
// The matrix product behind every op that has one. An element is a sum over k in ascending order in
// runs of kRun, whatever the sizes and the place of its row: so a token's result does not depend on
// what it is batched with.

#include "core/ops/reference/block.h"

namespace moetwin::reference {

inline constexpr int64_t kRun = 256;       ///< of k, summed in registers
inline constexpr int64_t kColumns = 1024;  ///< of b, packed at a time

/// A matrix in memory: strides in elements, one of them 1.
struct Matrix {
  const void* data;
  DType dtype;
  int64_t row, col;
  Matrix transposed() const { return {data, dtype, col, row}; }
};
inline Matrix matrix(const TensorView& v, int64_t first, int64_t width) {
  return {static_cast<const char*>(v.data) + first * size_of(v.dtype), v.dtype, width, 1};
}
template <class C>
Matrix plain(const C* data, int64_t width) {
  return {data, std::is_same_v<C, float> ? DType::f32 : DType::f64, width, 1};
}

/// Called when the elements [row, row + rows) x [col, col + cols) of c are final.
struct Finish {
  void (*done)(void* self, int64_t row, int64_t rows, int64_t col, int64_t cols) = nullptr;
  void* self = nullptr;
};

/// c [m,n] = a [m,k] b [k,n], or += with `accumulate`; c has row stride `width`.
template <class C>
void product(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, C* c, int64_t width,
             bool accumulate, Finish finish = {});

}  // namespace moetwin::reference
