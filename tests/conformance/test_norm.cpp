// LayerNorm, RMSNorm and the norm of query and key heads.

#include <catch2/catch.hpp>
#include <cmath>

#include "core/ops/norm.h"
#include "tests/conformance/gradient.h"

namespace moetwin::conformance {
namespace {

struct NormResult {
  Values y, mean, rstd;
};
NormResult plain_norm(const Values& x, const Values& gamma, const Values& beta, double epsilon,
                      bool layer) {
  const size_t h = gamma.size();
  NormResult r;
  for (size_t first = 0; first < x.size(); first += h) {
    double mean = 0, square = 0;
    for (size_t i = 0; i < h; ++i) mean += layer ? x[first + i] / static_cast<double>(h) : 0;
    for (size_t i = 0; i < h; ++i) square += std::pow(x[first + i] - mean, 2);
    const double rstd = 1 / std::sqrt(square / static_cast<double>(h) + epsilon);
    r.mean.push_back(mean);
    r.rstd.push_back(rstd);
    for (size_t i = 0; i < h; ++i)
      r.y.push_back((x[first + i] - mean) * rstd * gamma[i] + (beta.empty() ? 0 : beta[i]));
  }
  return r;
}

constexpr NormKind kKinds[] = {NormKind::layer, NormKind::rms};

}  // namespace

TEST_CASE("norms of odd rows, of shifted rows, and of no rows", "[norm]") {
  on_each_type([](Machine& machine, DType d) {
    for (NormKind kind : kKinds)
      for (const int64_t h : {1, 20, 37, 1030})
        for (const int64_t rows : {0, 1, 13}) {
          const bool layer = kind == NormKind::layer;
          Values x = draw(rows * h, 1, 3);
          for (double& v : x) v += 2;
          x = rounded(x, d);
          const Values gamma = rounded(draw(h, 2), d), beta = rounded(draw(h, 3), d);
          const Tensor y = machine.empty({rows, h}, d);
          const Tensor mean = layer ? machine.empty({rows}, real_dtype(d)) : Tensor{};
          const Tensor rstd = machine.empty({rows}, real_dtype(d));
          machine.launch(norm(machine.put({rows, h}, d, x), machine.put({h}, d, gamma),
                              layer ? machine.put({h}, d, beta) : Tensor{}, y, mean, rstd,
                              {kind, 1e-5}));
          const NormResult want = plain_norm(x, gamma, layer ? beta : Values{}, 1e-5, layer);
          expect(machine.get(y), want.y, tolerance(d, 30, 3), "y");
          // A single element has variance 0 after centring: rstd is 1/sqrt(epsilon) or so.
          if (h > 1) expect(machine.get(rstd), want.rstd, tolerance(real_dtype(d), 30), "rstd");
          if (layer) expect(machine.get(mean), want.mean, tolerance(real_dtype(d), 30, 3), "mean");
        }
  });
}

TEST_CASE("a large common offset does not spoil the variance", "[norm]") {
  on_each([](Machine& machine) {
    // Two-pass: with E[x^2] - E[x]^2 in fp32 the variance of 1000 +- 0.5 would be lost.
    const int64_t h = 64;
    Values x;
    for (int64_t i = 0; i < h; ++i) x.push_back(1000 + (i % 2 ? 0.5 : -0.5));
    const Tensor y = machine.empty({1, h}, DType::f32), mean = machine.empty({1}, DType::f32),
                 rstd = machine.empty({1}, DType::f32);
    machine.launch(norm(machine.put({1, h}, DType::f32, x),
                        machine.put({h}, DType::f32, Values(static_cast<size_t>(h), 1.0)), {}, y,
                        mean, rstd, {NormKind::layer, 0}));
    expect(machine.get(rstd), {2}, tolerance(DType::f32, 4), "rstd");
  });
}

TEST_CASE("backward of the norms: central differences in double, other types against it",
          "[norm][gradient]") {
  on_each([](Machine& machine) {
    if (!has_doubles(machine)) return;
    for (NormKind kind : kKinds) {
      const bool layer = kind == NormKind::layer;
      const int64_t rows = 5, h = 21;
      const NormAttr attr{kind, 1e-5};
      const Values x = rounded(draw(rows * h, 4, 2), DType::bf16),
                   gamma = rounded(draw(h, 5), DType::bf16),
                   dy = rounded(draw(rows * h, 6), DType::bf16),
                   before = rounded(draw(h, 7), DType::bf16);
      Values dx64, d_gamma64, d_beta64;
      for (DType d : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
        INFO(dtype_name(d));
        const NormResult forward = plain_norm(x, gamma, {}, 1e-5, layer);
        const DType real = real_dtype(d);
        const Tensor dx = machine.empty({rows, h}, d), d_gamma = machine.put({h}, d, before);
        const Tensor d_beta = layer ? machine.put({h}, real, before) : Tensor{};
        machine.launch(norm_backward(machine.put({rows, h}, d, x), machine.put({h}, d, gamma),
                                     layer ? machine.put({rows}, real, forward.mean) : Tensor{},
                                     machine.put({rows}, real, forward.rstd),
                                     machine.put({rows, h}, d, dy), dx, d_gamma, d_beta, attr));
        const Values got_dx = machine.get(dx);
        Values got_gamma = machine.get(d_gamma), got_beta = layer ? machine.get(d_beta) : Values{};
        if (d != DType::f64) {
          expect(got_dx, dx64, tolerance(d, 40, 4), "dx");
          expect(got_gamma, d_gamma64, tolerance(d, 40), "d_gamma");
          if (layer) expect(got_beta, d_beta64, tolerance(real, 40), "d_beta");
          continue;
        }
        dx64 = got_dx, d_gamma64 = got_gamma, d_beta64 = got_beta;
        const auto y_of = [&](const Values& vx, const Values& vg, const Values& vb) {
          return plain_norm(vx, vg, vb, 1e-5, layer).y;
        };
        expect_gradient(
            x, [&](const Values& v) { return y_of(v, gamma, {}); }, dy, got_dx, "x");
        for (size_t i = 0; i < before.size(); ++i) {
          got_gamma[i] -= before[i];
          if (layer) got_beta[i] -= before[i];
        }
        expect_gradient(
            gamma, [&](const Values& v) { return y_of(x, v, {}); }, dy, got_gamma, "gamma");
        if (layer)
          expect_gradient(
              before, [&](const Values& v) { return y_of(x, gamma, v); }, dy, got_beta, "beta");
      }
    }
  });
}

TEST_CASE("qk_norm norms query and key heads and leaves values", "[qk_norm][gradient]") {
  on_each_type([](Machine& machine, DType d) {
    HeadsAttr a;
    a.query_heads = 4, a.kv_heads = 2, a.head_dim = 6, a.sequence_length = 5;
    a.epsilon = 1e-6;
    const int64_t tokens = 10, normed = 6, width = 8 * 6;
    const Values x = rounded(draw(tokens * width, 8, 2), d), gq = rounded(draw(6, 9), d),
                 gk = rounded(draw(6, 10), d), dy = rounded(draw(tokens * width, 11), d);
    const auto plain = [&](const Values& v, const Values& q, const Values& k, Values* rstd) {
      Values out = v;
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t head = 0; head < normed; ++head) {
          const size_t at = static_cast<size_t>(t * width + head * 6);
          const NormResult r = plain_norm(
              Values(v.begin() + static_cast<long>(at), v.begin() + static_cast<long>(at) + 6),
              head < 4 ? q : k, {}, 1e-6, false);
          std::copy(r.y.begin(), r.y.end(), out.begin() + static_cast<long>(at));
          if (rstd) rstd->push_back(r.rstd[0]);
        }
      return out;
    };
    Values rstd;
    const Values want = plain(x, gq, gk, &rstd);
    const Tensor tx = machine.put({tokens, width}, d, x), tq = machine.put({6}, d, gq),
                 tk = machine.put({6}, d, gk), out = machine.empty({tokens, width}, d),
                 tr = machine.empty({tokens, normed}, real_dtype(d));
    machine.launch(qk_norm(tx, tq, tk, out, tr, a));
    expect(machine.get(out), want, tolerance(d, 10), "out");
    expect(machine.get(tr), rstd, tolerance(real_dtype(d), 10), "rstd");
    const Tensor dx = machine.empty({tokens, width}, d), dq = machine.put({6}, d, Values(6, 1.0)),
                 dk = machine.put({6}, d, Values(6, -1.0));
    machine.launch(
        qk_norm_backward(tx, tq, tk, tr, machine.put({tokens, width}, d, dy), dx, dq, dk, a));
    if (d != DType::f64) return;
    Values got_q = machine.get(dq), got_k = machine.get(dk);
    for (size_t i = 0; i < 6; ++i) got_q[i] -= 1, got_k[i] += 1;
    expect_gradient(
        x, [&](const Values& v) { return plain(v, gq, gk, nullptr); }, dy, machine.get(dx), "qkv");
    expect_gradient(
        gq, [&](const Values& v) { return plain(x, v, gk, nullptr); }, dy, got_q, "q");
    expect_gradient(
        gk, [&](const Values& v) { return plain(x, gq, v, nullptr); }, dy, got_k, "k");
  });
}

}  // namespace moetwin::conformance
