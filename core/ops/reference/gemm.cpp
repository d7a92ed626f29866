#include "core/ops/gemm.h"

#include "core/ops/reference/gelu.h"
#include "core/ops/reference/product.h"
#include "core/ops/reference/table.h"

namespace moetwin::reference {
namespace {

/// What follows the product, on the part of c just finished: bias, pre, epilogue, rounding.
template <class C>
struct Tail {
  const C* sums;  ///< [m, width], in place where the result is of type C
  int64_t width;
  TensorView c, pre;
  const C* bias;
  int64_t first_row, columns;  ///< of c and pre
  Epilogue epilogue;
  bool accumulate;

  static void done(void* self, int64_t row, int64_t rows, int64_t col, int64_t cols) {
    static_cast<const Tail*>(self)->run(row, rows, col, cols);
  }
  void run(int64_t row, int64_t rows, int64_t col, int64_t cols) const {
    namespace ei = Eigen::internal;
    alignas(64) C value[kBlock];
    const bool tanh_form = epilogue == Epilogue::gelu_tanh;
    for (int64_t r = row; r < row + rows; ++r)
      for (int64_t j = col; j < col + cols; j += kBlock) {
        const int64_t n = std::min(kBlock, col + cols - j), at = (first_row + r) * columns + j;
        const C* x = sums + r * width + j;
        for_packets<C>(n, [&](int64_t i, int64_t used) {
          Packet<C> v = load_n<C>(x + i, used);
          if (bias) v = ei::padd(v, load_n<C>(bias + j + i, used));
          store_n<C>(value + i, v, used);
        });
        if (pre.data) write<C>(pre, at, n, value);
        if (epilogue != Epilogue::none)
          for_packets<C>(n, [&](int64_t i, int64_t used) {
            store_n<C>(value + i, gelu_of<C>(load_n<C>(value + i, used), tanh_form), used);
          });
        if (accumulate)
          add_to<C>(c, at, n, value);
        else
          write<C>(c, at, n, value);
      }
  }
};

/// Rows [first, first + m) of c = epilogue(a b + bias), also to `pre`.
template <class C>
void product_with_tail(int64_t m, int64_t k, const Matrix& a, const Matrix& b, const C* bias,
                       const TensorView& c, const TensorView& pre, int64_t first, Epilogue epilogue,
                       bool accumulate) {
  const int64_t n = c.shape[1];
  const bool direct = is_plain<C>(c);
  const bool tail = bias || pre.data || epilogue != Epilogue::none || !direct;
  // An accumulated bias must not be added to what was there before it is rounded: own sums.
  const bool own = !direct || (accumulate && bias);
  const Scratch<C> sums(own ? m * n : 0);
  C* out = own ? sums.get() : c.as<C>() + first * n;
  Tail<C> after{out, n, c, pre, bias, first, n, epilogue, accumulate && own};
  product<C>(m, n, k, a, b, out, n, accumulate && !own,
             tail ? Finish{&Tail<C>::done, &after} : Finish{});
}

template <class C>
const C* bias_of(const TensorView& v, int64_t first, int64_t n, const Scratch<C>& buffer) {
  return v.data ? peek<C>(v, first, n, buffer.get()) : nullptr;
}

}  // namespace

void gemm(const ReferenceCall& call) {
  const auto attr = call.get<GemmAttr>();
  Matrix a = matrix(call[0], 0, call[0].shape[1]), b = matrix(call[1], 0, call[1].shape[1]);
  if (attr.transpose_a) a = a.transposed();
  if (attr.transpose_b) b = b.transposed();
  const int64_t m = call[3].shape[0], n = call[3].shape[1];
  const int64_t k = call[0].shape[attr.transpose_a ? 0 : 1];
  with_compute(call[0].dtype, [&]<class C>(C) {
    const Scratch<C> bias(n);
    product_with_tail<C>(m, k, a, b, bias_of<C>(call[2], 0, n, bias), call[3], call[4], 0,
                         attr.epilogue, attr.accumulate);
  });
}

void grouped_gemm(const ReferenceCall& call) {
  const auto attr = call.get<GroupedGemmAttr>();
  const int64_t k = call[0].shape[1], n = call[3].shape[1];
  with_compute(call[0].dtype, [&]<class C>(C) {
    const Scratch<C> bias(n);
    int64_t row = 0;
    for (size_t g = 0; g < call.sizes->size(); ++g) {
      const int64_t rows = (*call.sizes)[g], group = static_cast<int64_t>(g);
      if (rows == 0) continue;
      const Matrix b = attr.transpose_b ? matrix(call[1], group * k * n, k).transposed()
                                        : matrix(call[1], group * k * n, n);
      product_with_tail<C>(rows, k, matrix(call[0], row * k, k), b,
                           bias_of<C>(call[2], group * n, n, bias), call[3], call[4], row,
                           attr.epilogue, false);
      row += rows;
    }
  });
}

void grouped_gemm_weight_grad(const ReferenceCall& call) {
  const int64_t k = call[0].shape[1], n = call[1].shape[1];
  with_compute(call[0].dtype, [&]<class C>(C) {
    int64_t row = 0;
    for (size_t g = 0; g < call.sizes->size(); ++g) {
      const int64_t rows = (*call.sizes)[g], at = static_cast<int64_t>(g) * k * n;
      if (rows == 0) continue;
      const Matrix a = matrix(call[0], row * k, k).transposed(), dc = matrix(call[1], row * n, n);
      if (is_plain<C>(call[2])) {
        product<C>(k, n, rows, a, dc, call[2].as<C>() + at, n, true);
      } else {
        const Scratch<C> sums(k * n);
        product<C>(k, n, rows, a, dc, sums.get(), n, false);
        add_to<C>(call[2], at, k * n, sums.get());
      }
      row += rows;
    }
  });
}

namespace {

/// d[at...] += sum of rows [first, first + rows) of dy, ascending.
template <class C>
void add_rows(const TensorView& dy, int64_t first, int64_t rows, const TensorView& d, int64_t at) {
  const int64_t n = dy.shape[1];
  alignas(64) C sum[kBlock], part[kBlock];
  for (int64_t j = 0; j < n; j += kBlock) {
    const int64_t m = std::min(kBlock, n - j);
    std::fill_n(sum, m, C(0));
    for (int64_t r = first; r < first + rows; ++r) {
      const C* x = peek<C>(dy, r * n + j, m, part);
      for (int64_t i = 0; i < m; ++i) sum[i] += x[i];
    }
    add_to<C>(d, at + j, m, sum);
  }
}

}  // namespace

void bias_grad(const ReferenceCall& call) {
  with_compute(call[0].dtype,
               [&]<class C>(C) { add_rows<C>(call[0], 0, call[0].shape[0], call[1], 0); });
}

void grouped_bias_grad(const ReferenceCall& call) {
  with_compute(call[0].dtype, [&]<class C>(C) {
    int64_t row = 0;
    for (size_t g = 0; g < call.sizes->size(); ++g) {
      const int64_t rows = (*call.sizes)[g];
      if (rows > 0)
        add_rows<C>(call[0], row, rows, call[1], static_cast<int64_t>(g) * call[0].shape[1]);
      row += rows;
    }
  });
}

}  // namespace moetwin::reference
