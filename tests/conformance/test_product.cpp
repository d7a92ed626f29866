// gemm, grouped gemm and their gradients against plain loops.

#include <catch2/catch.hpp>
#include <cmath>

#include "core/ops/gemm.h"
#include "tests/conformance/machine.h"

namespace moetwin::conformance {
namespace {

double gelu_of(double x, bool tanh_form) {
  if (tanh_form) return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
}
double after(double x, Epilogue e) {
  return e == Epilogue::none ? x : gelu_of(x, e == Epilogue::gelu_tanh);
}

/// a [m,k] b [k,n] from any strides.
Values product(int64_t m, int64_t n, int64_t k, const Values& a, bool ta, const Values& b,
               bool tb) {
  Values c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += a[static_cast<size_t>(ta ? l * m + i : i * k + l)] *
               b[static_cast<size_t>(tb ? j * k + l : l * n + j)];
      c[static_cast<size_t>(i * n + j)] = sum;
    }
  return c;
}

struct Size {
  int64_t m, n, k;
};
// Odd, one row, one column, beyond one run of k and one block of columns, exact tiles.
constexpr Size kSizes[] = {{13, 20, 7},  {1, 5, 9}, {29, 1, 3}, {14, 32, 256}, {3, 70, 259},
                           {2, 1030, 5}, {0, 4, 4}, {5, 4, 0},  {33, 65, 300}, {17, 129, 31}};

}  // namespace

TEST_CASE("gemm in every transposition and dtype equals the plain sum", "[gemm]") {
  on_each_type([](Machine& machine, DType d) {
    for (const Size& s : kSizes)
      for (const bool ta : {false, true})
        for (const bool tb : {false, true}) {
          INFO("m " << s.m << " n " << s.n << " k " << s.k << " ta " << ta << " tb " << tb);
          const Values a = rounded(draw(s.m * s.k, 1), d), b = rounded(draw(s.k * s.n, 2), d);
          const Tensor ta_ = machine.put(ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, d, a);
          const Tensor tb_ = machine.put(tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, d, b);
          const Tensor c = machine.empty({s.m, s.n}, d);
          GemmAttr attr;
          attr.transpose_a = ta;
          attr.transpose_b = tb;
          machine.launch(gemm(ta_, tb_, {}, c, {}, attr));
          expect(machine.get(c), product(s.m, s.n, s.k, a, ta, b, tb),
                 tolerance(d, static_cast<double>(s.k) + 1), "c");
        }
  });
}

TEST_CASE("gemm adds bias, keeps pre and applies the epilogue", "[gemm]") {
  on_each_type([](Machine& machine, DType d) {
    for (const Size& s : kSizes)
      for (Epilogue e : {Epilogue::none, Epilogue::gelu, Epilogue::gelu_tanh}) {
        INFO("m " << s.m << " n " << s.n << " k " << s.k << " epilogue " << static_cast<int>(e));
        const Values a = rounded(draw(s.m * s.k, 3), d), b = rounded(draw(s.k * s.n, 4), d);
        const Values bias = rounded(draw(s.n, 5), d);
        const Tensor c = machine.empty({s.m, s.n}, d), pre = machine.empty({s.m, s.n}, d);
        GemmAttr attr;
        attr.epilogue = e;
        machine.launch(gemm(machine.put({s.m, s.k}, d, a), machine.put({s.k, s.n}, d, b),
                            machine.put({s.n}, d, bias), c, pre, attr));
        Values want = product(s.m, s.n, s.k, a, false, b, false), want_c = want;
        for (size_t i = 0; i < want.size(); ++i) {
          want[i] += bias[i % static_cast<size_t>(s.n)];
          want_c[i] = after(want[i], e);
        }
        const Tolerance t = with_rounding(tolerance(d, static_cast<double>(s.k) + 4), machine, d,
                                          1 + std::sqrt(static_cast<double>(s.k)));
        expect(machine.get(pre), want, t, "pre");
        expect(machine.get(c), want_c, t, "c");
      }
  });
}

TEST_CASE("gemm accumulates, also 16-bit products into f32", "[gemm]") {
  on_each_type([](Machine& machine, DType d) {
    for (DType out : {d, real_dtype(d)}) {
      const Size s{13, 20, 300};
      const Values a = rounded(draw(s.m * s.k, 6), d), b = rounded(draw(s.k * s.n, 7), d);
      const Values before = rounded(draw(s.m * s.n, 8, 50), out), bias = rounded(draw(s.n, 9), d);
      for (const bool with_bias : {false, true}) {
        const Tensor c = machine.put({s.m, s.n}, out, before);
        GemmAttr attr;
        attr.accumulate = true;
        machine.launch(gemm(machine.put({s.m, s.k}, d, a), machine.put({s.k, s.n}, d, b),
                            with_bias ? machine.put({s.n}, d, bias) : Tensor{}, c, {}, attr));
        Values want = product(s.m, s.n, s.k, a, false, b, false);
        for (size_t i = 0; i < want.size(); ++i)
          want[i] += before[i] + (with_bias ? bias[i % static_cast<size_t>(s.n)] : 0);
        expect(machine.get(c), want, tolerance(out, 400), "c");
      }
    }
  });
}

TEST_CASE("16-bit products are summed in fp32: 4,096 times 0.01 is 41", "[gemm]") {
  on_each([](Machine& machine) {
    for (DType d : {DType::bf16, DType::f16}) {
      const int64_t k = 4096;
      const Tensor c = machine.empty({1, 1}, d);
      machine.launch(gemm(machine.put({1, k}, d, Values(static_cast<size_t>(k), 0.01)),
                          machine.put({k, 1}, d, Values(static_cast<size_t>(k), 1.0)), {}, c, {},
                          {}));
      expect(machine.get(c), {4096 * rounded(0.01, d)}, tolerance(d, 1), "sum");
    }
  });
}

TEST_CASE("a row of a product has the same bits whatever it is batched with", "[gemm][C25]") {
  on_each_type([](Machine& machine, DType d) {
    if (machine.by_library()) return;  // cuBLAS chooses by shape and promises no such thing
    const int64_t m = 31, n = 45, k = 300;
    const Tensor a = machine.put({m, k}, d, draw(m * k, 10));
    const Tensor b = machine.put({k, n}, d, draw(k * n, 11));
    const Tensor all = machine.empty({m, n}, d);
    machine.launch(gemm(a, b, {}, all, {}, {}));
    for (int64_t first = 0; first < m; first += 5) {
      const int64_t rows = std::min<int64_t>(5, m - first);
      const Tensor part = machine.empty({rows, n}, d);
      machine.launch(gemm(a.rows(first, rows), b, {}, part, {}, {}));
      expect_equal(machine.get(part), machine.get(all.rows(first, rows)), "rows");
    }
  });
}

TEST_CASE("grouped gemm equals the loop over groups, empty ones included", "[P024][grouped_gemm]") {
  on_each_type([](Machine& machine, DType d) {
    const std::vector<int64_t> counts = {0, 5, 0, 0, 3, 0, 0, 8};
    const int64_t g = 8, h = 16, f = 32, rows = 16, given = 19;  // three rows stay untouched
    const Values a = rounded(draw(given * h, 12), d), b = rounded(draw(g * h * f, 13), d);
    const Values bias = rounded(draw(g * f, 14), d);
    for (const bool transposed : {false, true}) {
      const Tensor c = machine.put({given, f}, d, Values(static_cast<size_t>(given * f), 7.0));
      const Tensor pre = machine.empty({given, f}, d);
      GroupedGemmAttr attr;
      attr.transpose_b = transposed;
      attr.epilogue = Epilogue::gelu;
      machine.launch(grouped_gemm(machine.put({given, h}, d, a),
                                  machine.put(transposed ? Shape{g, f, h} : Shape{g, h, f}, d, b),
                                  machine.put({g, f}, d, bias), c, pre, attr, sizes(counts)));
      Values want, want_pre;
      int64_t row = 0;
      for (int64_t e = 0; e < g; ++e)
        for (int64_t r = 0; r < counts[static_cast<size_t>(e)]; ++r, ++row)
          for (int64_t j = 0; j < f; ++j) {
            double sum = bias[static_cast<size_t>(e * f + j)];
            for (int64_t l = 0; l < h; ++l)
              sum += a[static_cast<size_t>(row * h + l)] *
                     b[static_cast<size_t>(e * h * f + (transposed ? j * h + l : l * f + j))];
            want_pre.push_back(sum);
            want.push_back(after(sum, Epilogue::gelu));
          }
      const Tolerance t = with_rounding(tolerance(d, 20), machine, d, 4);
      expect(machine.get(c.rows(0, rows)), want, t, "c");
      expect(machine.get(pre.rows(0, rows)), want_pre, t, "pre");
      expect_equal(machine.get(c.rows(rows, 3)), Values(static_cast<size_t>(3 * f), 7.0), "rest");
    }
  });
}

TEST_CASE("gradients of a grouped gemm's weights: empty groups add nothing",
          "[P024][grouped_gemm]") {
  on_each_type([](Machine& machine, DType d) {
    const std::vector<int64_t> counts = {0, 5, 0, 0, 3, 0, 0, 8};
    const int64_t g = 8, h = 16, f = 32, rows = 16;
    const Values a = rounded(draw(rows * h, 15), d), dc = rounded(draw(rows * f, 16), d);
    for (DType out : {d, real_dtype(d)}) {
      const Values before_b = rounded(draw(g * h * f, 17), out);
      const Values before_bias = rounded(draw(g * f, 18), out);
      const Tensor d_b = machine.put({g, h, f}, out, before_b);
      const Tensor d_bias = machine.put({g, f}, out, before_bias);
      const Tensor ta = machine.put({rows, h}, d, a), tdc = machine.put({rows, f}, d, dc);
      machine.launch(grouped_gemm_weight_grad(ta, tdc, d_b, sizes(counts)));
      machine.launch(grouped_bias_grad(tdc, d_bias, sizes(counts)));
      Values want_b = before_b, want_bias = before_bias;
      int64_t row = 0;
      for (int64_t e = 0; e < g; ++e)
        for (int64_t r = 0; r < counts[static_cast<size_t>(e)]; ++r, ++row)
          for (int64_t j = 0; j < f; ++j) {
            const double y = dc[static_cast<size_t>(row * f + j)];
            want_bias[static_cast<size_t>(e * f + j)] += y;
            for (int64_t l = 0; l < h; ++l)
              want_b[static_cast<size_t>((e * h + l) * f + j)] +=
                  a[static_cast<size_t>(row * h + l)] * y;
          }
      expect(machine.get(d_b), want_b, tolerance(out, 12), "d_b");
      expect(machine.get(d_bias), want_bias, tolerance(out, 12), "d_bias");
      // An empty group's gradient keeps its bits.
      expect_equal(machine.get(d_b.rows(2, 2)),
                   Values(before_b.begin() + 2 * h * f, before_b.begin() + 4 * h * f), "empty");
    }
  });
}

TEST_CASE("one group, all groups empty and no rows at all are legal", "[grouped_gemm][C04]") {
  on_each([](Machine& machine) {
    const DType d = DType::f32;
    const Tensor b = machine.put({2, 3, 4}, d, draw(24, 19));
    const Tensor c = machine.put({5, 4}, d, Values(20, 1.0));
    const Tensor a = machine.put({5, 3}, d, draw(15, 20));
    machine.launch(grouped_gemm(a, b, {}, c, {}, {}, sizes({0, 0})));
    expect_equal(machine.get(c), Values(20, 1.0), "c");
    machine.launch(grouped_gemm(machine.empty({0, 3}, d), b, {}, machine.empty({0, 4}, d), {}, {},
                                sizes({0, 0})));
    const Tensor d_b = machine.put({2, 3, 4}, d, Values(24, 0.0));
    machine.launch(grouped_gemm_weight_grad(machine.empty({0, 3}, d), machine.empty({0, 4}, d), d_b,
                                            sizes({0, 0})));
    expect_equal(machine.get(d_b), Values(24, 0.0), "d_b");
  });
}

TEST_CASE("bias gradients add the rows", "[gemm]") {
  on_each_type([](Machine& machine, DType d) {
    for (DType out : {d, real_dtype(d)}) {
      const int64_t m = 29, n = 1031;
      const Values dy = rounded(draw(m * n, 21), d), before = rounded(draw(n, 22), out);
      const Tensor d_bias = machine.put({n}, out, before);
      machine.launch(bias_grad(machine.put({m, n}, d, dy), d_bias));
      Values want = before;
      for (size_t i = 0; i < dy.size(); ++i) want[i % static_cast<size_t>(n)] += dy[i];
      expect(machine.get(d_bias), want, tolerance(out, 30), "d_bias");
    }
  });
}

}  // namespace moetwin::conformance
