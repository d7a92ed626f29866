#include "core/ops/reference/product.h"

#include <cstring>
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

/// Elements a panel may be written beyond its end: whole packets are stored.
template <class C>
inline constexpr int64_t kSlack = 2 * kLanes<C>;

/// out[l * stride + r] = in[r * width + l] for r < rows <= 2 lanes, r >= rows zero up to whole
/// packets; those fall into place l + 1, which is written later.
template <class C>
void transpose(const C* in, int64_t width, int64_t rows, int64_t k, C* out, int64_t stride) {
  constexpr int lanes = kLanes<C>;
  const int blocks = rows > lanes ? 2 : 1;
  int64_t l = 0;
  for (; l + lanes <= k; l += lanes) {
    Eigen::internal::PacketBlock<Packet<C>, lanes> block[2];
    for (int b = 0; b < blocks; ++b) {
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i)
        block[b].packet[i] =
            b * lanes + i < rows ? load<C>(in + (b * lanes + i) * width + l) : set1<C>(0);
      Eigen::internal::ptranspose(block[b]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) {
      store<C>(out + (l + i) * stride, block[0].packet[i]);
      if (blocks == 2) store<C>(out + (l + i) * stride + lanes, block[1].packet[i]);
    }
  }
  for (; l < k; ++l)
    for (int64_t r = 0; r < rows; ++r) out[l * stride + r] = in[r * width + l];
}

/// panel[l * rows + r] = a[row + r, l0 + l].
template <class C>
void pack_panel(const Matrix& a, int64_t row, int64_t rows, int64_t l0, int64_t k, C* panel) {
  const TensorView view{const_cast<void*>(a.data), {}, a.dtype};
  if (a.row == 1) {
    for (int64_t l = 0; l < k; ++l) {
      const int64_t at = row + (l0 + l) * a.col;
      if (is_plain<C>(view) && rows == kRows<C>)
        std::memcpy(panel + l * kRows<C>, view.as<const C>() + at, kRows<C> * sizeof(C));
      else
        read<C>(view, at, rows, panel + l * rows);
    }
    return;
  }
  const int64_t first = row * a.row + l0;
  if (is_plain<C>(view))
    return transpose<C>(view.as<const C>() + first, a.row, rows, k, panel, rows);
  alignas(64) C wide[kRows<C> * kRun];
  for (int64_t r = 0; r < rows; ++r) read<C>(view, first + r * a.row, k, wide + r * kRun);
  transpose<C>(wide, kRun, rows, k, panel, rows);
}

/// Strips of kWidth columns: packed[j * k + l * kWidth + i] = b[l0 + l, col + j + i], columns
/// beyond `cols` zero.
template <class C>
void pack_columns(const Matrix& b, int64_t l0, int64_t k, int64_t col, int64_t cols, C* packed) {
  constexpr int64_t w = kWidth<C>;
  const TensorView view{const_cast<void*>(b.data), {}, b.dtype};
  for (int64_t j = 0; j < cols; j += w) {
    const int64_t first = l0 * b.row + (col + j) * b.col, used = std::min<int64_t>(w, cols - j);
    C* strip = packed + j * k;
    if (used < w) std::fill(strip, strip + k * w, C(0));
    if (b.col == 1) {
      for (int64_t l = 0; l < k; ++l) {
        const int64_t at = first + l * b.row;
        if (is_plain<C>(view) && used == w)
          std::memcpy(strip + l * w, view.as<const C>() + at, static_cast<size_t>(w) * sizeof(C));
        else
          read<C>(view, at, used, strip + l * w);
      }
    } else if (is_plain<C>(view)) {
      transpose<C>(view.as<const C>() + first, b.col, used, k, strip, w);
    } else {
      alignas(64) C wide[w * kRun];
      for (int64_t i = 0; i < used; ++i) read<C>(view, first + i * b.col, k, wide + i * kRun);
      transpose<C>(wide, kRun, used, k, strip, w);
    }
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
  alignas(64) C panel[kRows<C> * kRun + kSlack<C>];
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
