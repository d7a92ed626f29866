#include "core/ops/reference/product.h"

#include <bit>
#include <utility>

namespace moetwin::reference {
namespace {

/// Rows of a register tile: two packets wide, as many as registers allow.
template <class C>
inline constexpr int kRows = sizeof(C) * kLanes<C> == 64   ? 14
                             : sizeof(C) * kLanes<C> == 32 ? 6
                                                           : 4;
template <class C>
inline constexpr int kWidth = 2 * kLanes<C>;

struct Bf16 {
  uint16_t bits;
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};
using F16 = Eigen::half;

/// panel[l * rows + r] = a[r, l]
template <class C, class S>
void pack_rows(const Matrix& a, int64_t row, int64_t rows, int64_t l0, int64_t k, C* panel) {
  const S* p = static_cast<const S*>(a.data) + row * a.row + l0 * a.col;
  if (a.row == 1) {
    for (int64_t l = 0; l < k; ++l)
      for (int64_t r = 0; r < rows; ++r)
        panel[l * rows + r] = static_cast<C>(static_cast<float>(p[l * a.col + r]));
    return;
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t l = 0; l < k; ++l)
      panel[l * rows + r] = static_cast<C>(static_cast<float>(p[r * a.row + l * a.col]));
}
template <class C>
void pack_rows_plain(const Matrix& a, int64_t row, int64_t rows, int64_t l0, int64_t k, C* panel) {
  const C* p = static_cast<const C*>(a.data) + row * a.row + l0 * a.col;
  if (a.row == 1) {
    for (int64_t l = 0; l < k; ++l)
      for (int64_t r = 0; r < rows; ++r) panel[l * rows + r] = p[l * a.col + r];
    return;
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t l = 0; l < k; ++l) panel[l * rows + r] = p[r * a.row + l * a.col];
}

/// strip[l * kWidth + j] = b[l, j], columns beyond `cols` zero.
template <class C, class S>
void pack_strip(const S* p, const Matrix& b, int64_t k, int64_t cols, C* strip) {
  constexpr int64_t w = kWidth<C>;
  const auto value = [](const S& s) {
    if constexpr (std::is_same_v<S, C>)
      return s;
    else
      return static_cast<C>(static_cast<float>(s));
  };
  if (cols < w) std::fill(strip, strip + k * w, C(0));
  if (b.col == 1 && cols == w) {
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < w; ++j) strip[l * w + j] = value(p[l * b.row + j]);
    return;
  }
  for (int64_t j = 0; j < cols; ++j)
    for (int64_t l = 0; l < k; ++l) strip[l * w + j] = value(p[l * b.row + j * b.col]);
}
template <class C>
void pack_columns(const Matrix& b, int64_t l0, int64_t k, int64_t col, int64_t cols, C* packed) {
  for (int64_t j = 0; j < cols; j += kWidth<C>) {
    const int64_t at = l0 * b.row + (col + j) * b.col,
                  used = std::min<int64_t>(kWidth<C>, cols - j);
    C* strip = packed + j * k;
    if (b.dtype == DType::bf16)
      pack_strip<C>(static_cast<const Bf16*>(b.data) + at, b, k, used, strip);
    else if (b.dtype == DType::f16)
      pack_strip<C>(static_cast<const F16*>(b.data) + at, b, k, used, strip);
    else
      pack_strip<C>(static_cast<const C*>(b.data) + at, b, k, used, strip);
  }
}

/// One register tile: rows x two packets, over k; c = or += the sums.
template <class C, int rows>
void tile(int64_t k, const C* a, const C* b, C* c, int64_t width, bool add) {
  namespace ei = Eigen::internal;
  constexpr int lanes = kLanes<C>;
  Packet<C> sum[rows][2];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) sum[r][0] = sum[r][1] = set1<C>(0);
  for (int64_t l = 0; l < k; ++l) {
    const Packet<C> b0 = load<C>(b), b1 = load<C>(b + lanes);
    b += 2 * lanes;
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const Packet<C> x = set1<C>(a[r]);
      sum[r][0] = ei::pmadd(x, b0, sum[r][0]);
      sum[r][1] = ei::pmadd(x, b1, sum[r][1]);
    }
    a += rows;
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    C* out = c + r * width;
    if (add) {
      sum[r][0] = ei::padd(load<C>(out), sum[r][0]);
      sum[r][1] = ei::padd(load<C>(out + lanes), sum[r][1]);
    }
    store<C>(out, sum[r][0]);
    store<C>(out + lanes, sum[r][1]);
  }
}
template <class C>
using Tile = void (*)(int64_t, const C*, const C*, C*, int64_t, bool);
template <class C, int... r>
constexpr std::array<Tile<C>, sizeof...(r)> tiles(std::integer_sequence<int, r...>) {
  return {&tile<C, r + 1>...};
}

template <class C>
void panel_product(int64_t rows, int64_t cols, int64_t k, const C* panel, const C* packed, C* c,
                   int64_t width, bool add) {
  static constexpr auto kTiles = tiles<C>(std::make_integer_sequence<int, kRows<C>>{});
  const Tile<C> f = kTiles[static_cast<size_t>(rows - 1)];
  for (int64_t j = 0; j < cols; j += kWidth<C>) {
    const C* strip = packed + j * k;
    if (j + kWidth<C> <= cols) {
      f(k, panel, strip, c + j, width, add);
      continue;
    }
    alignas(64) C edge[kRows<C> * kWidth<C>];
    f(k, panel, strip, edge, kWidth<C>, false);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; j + i < cols; ++i) {
        C& out = c[r * width + j + i];
        out = add ? out + edge[r * kWidth<C> + i] : edge[r * kWidth<C> + i];
      }
  }
}

template <class C>
void pack_panel(const Matrix& a, int64_t row, int64_t rows, int64_t l0, int64_t k, C* panel) {
  if (a.dtype == DType::bf16)
    pack_rows<C, Bf16>(a, row, rows, l0, k, panel);
  else if (a.dtype == DType::f16)
    pack_rows<C, F16>(a, row, rows, l0, k, panel);
  else
    pack_rows_plain<C>(a, row, rows, l0, k, panel);
}

}  // namespace

template <class C>
void product(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, C* c, int64_t width,
             bool accumulate, Finish finish) {
  if (k == 0 && !accumulate)
    for (int64_t r = 0; r < m; ++r) std::fill(c + r * width, c + r * width + n, C(0));
  if (k == 0 && finish.done) finish.done(finish.self, 0, m, 0, n);
  if (m == 0 || n == 0 || k == 0) return;
  const int64_t columns = std::min(kColumns, (n + kWidth<C> - 1) / kWidth<C> * kWidth<C>);
  const Scratch<C> packed(columns * std::min(k, kRun));
  alignas(64) C panel[kRows<C> * kRun];
  for (int64_t j = 0; j < n; j += kColumns) {
    const int64_t cols = std::min(kColumns, n - j);
    for (int64_t l = 0; l < k; l += kRun) {
      const int64_t run = std::min(kRun, k - l);
      pack_columns<C>(b, l, run, j, cols, packed.get());
      for (int64_t i = 0; i < m; i += kRows<C>) {
        const int64_t rows = std::min<int64_t>(kRows<C>, m - i);
        pack_panel<C>(a, i, rows, l, run, panel);
        panel_product<C>(rows, cols, run, panel, packed.get(), c + i * width + j, width,
                         accumulate || l > 0);
        if (finish.done && l + run == k) finish.done(finish.self, i, rows, j, cols);
      }
    }
  }
}
template void product<float>(int64_t, int64_t, int64_t, const Matrix&, const Matrix&, float*,
                             int64_t, bool, Finish);
template void product<double>(int64_t, int64_t, int64_t, const Matrix&, const Matrix&, double*,
                              int64_t, bool, Finish);

}  // namespace moetwin::reference
