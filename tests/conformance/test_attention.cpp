// Causal attention with grouped-query heads, and rotary positions.

#include <catch2/catch.hpp>
#include <cmath>

#include "core/ops/attention.h"
#include "tests/conformance/gradient.h"

namespace moetwin::conformance {
namespace {

HeadsAttr heads(int64_t q, int64_t kv, int64_t d, int64_t s, double scale = 0) {
  HeadsAttr a;
  a.query_heads = q, a.kv_heads = kv, a.head_dim = d, a.sequence_length = s, a.scale = scale;
  return a;
}
HeadsAttr with_values(HeadsAttr a, int64_t value_dim) {
  a.value_dim = value_dim;
  return a;
}
int64_t width_of(const HeadsAttr& a) {
  return (a.query_heads + a.kv_heads) * a.head_dim + a.kv_heads * a.value_width();
}

struct Attended {
  Values out, lse;
};
Attended plain_attention(const Values& qkv, const HeadsAttr& a, int64_t tokens) {
  const int64_t d = a.head_dim, dv = a.value_width(), s = a.sequence_length, width = width_of(a);
  const double scale = a.scale != 0 ? a.scale : 1 / std::sqrt(static_cast<double>(d));
  const auto at = [&](int64_t token, int64_t head, int64_t i) {
    return qkv[static_cast<size_t>(token * width + head * d + i)];
  };
  const auto value = [&](int64_t token, int64_t kv, int64_t i) {
    return qkv[static_cast<size_t>(token * width + (a.query_heads + a.kv_heads) * d + kv * dv + i)];
  };
  Attended r{Values(static_cast<size_t>(tokens * a.query_heads * dv)),
             Values(static_cast<size_t>(tokens * a.query_heads))};
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t head = 0; head < a.query_heads; ++head) {
      const int64_t first = t / s * s, kv = head / (a.query_heads / a.kv_heads);
      Values p;
      double sum = 0, top = -HUGE_VAL;
      for (int64_t j = first; j <= t; ++j) {
        double score = 0;
        for (int64_t i = 0; i < d; ++i) score += at(t, head, i) * at(j, a.query_heads + kv, i);
        p.push_back(score * scale);
        top = std::max(top, p.back());
      }
      for (double& v : p) v = std::exp(v - top), sum += v;
      r.lse[static_cast<size_t>(t * a.query_heads + head)] = top + std::log(sum);
      for (int64_t j = first; j <= t; ++j)
        for (int64_t i = 0; i < dv; ++i)
          r.out[static_cast<size_t>((t * a.query_heads + head) * dv + i)] +=
              p[static_cast<size_t>(j - first)] / sum * value(j, kv, i);
    }
  return r;
}

}  // namespace

TEST_CASE("attention equals the plain softmax over what a token may see", "[attention]") {
  on_each_type([](Machine& machine, DType d) {
    // One token, groups, odd head sizes, more rows than one block of queries, an own scale, values
    // narrower and wider than keys.
    for (const auto& [a, tokens] :
         {std::pair{heads(1, 1, 4, 1), int64_t{3}}, std::pair{heads(4, 2, 5, 13), int64_t{26}},
          std::pair{heads(6, 1, 8, 7, 0.3), int64_t{7}},
          std::pair{heads(2, 2, 16, 150), int64_t{300}},
          std::pair{with_values(heads(4, 2, 12, 70), 8), int64_t{140}},
          std::pair{with_values(heads(2, 2, 3, 5), 7), int64_t{10}},
          std::pair{heads(2, 1, 4, 3), int64_t{0}}}) {
      const Values qkv = rounded(draw(tokens * width_of(a), 1, 2), d);
      const Tensor out = machine.empty({tokens, a.query_heads * a.value_width()}, d);
      const Tensor lse = machine.empty({tokens, a.query_heads}, real_dtype(d));
      machine.launch(attention(machine.put({tokens, width_of(a)}, d, qkv), out, lse, a));
      const Attended want = plain_attention(qkv, a, tokens);
      expect(machine.get(out), want.out, with_rounding(tolerance(d, 60, 2), machine, d, 2), "out");
      expect(machine.get(lse), want.lse, tolerance(real_dtype(d), 60, 4), "lse");
    }
  });
}

TEST_CASE("scores far apart neither overflow nor hide a NaN", "[attention]") {
  on_each([](Machine& machine) {
    const HeadsAttr a = heads(1, 1, 2, 4, 1);
    Values qkv(24, 0.0);
    for (size_t t = 0; t < 4; ++t) {
      qkv[t * 6] = 100;                         // query
      qkv[t * 6 + 2] = t == 1 ? 10.0 : -10.0;   // key: score 1000 or -1000
      qkv[t * 6 + 4] = static_cast<double>(t);  // value
    }
    const Tensor out = machine.empty({4, 2}, DType::f32), lse = machine.empty({4, 1}, DType::f32);
    machine.launch(attention(machine.put({4, 6}, DType::f32, qkv), out, lse, a));
    expect_equal(machine.get(out), {0, 0, 1, 0, 1, 0, 1, 0}, "out");
    qkv[2 * 6 + 2] = std::nan("");  // the key of token 2
    machine.launch(attention(machine.put({4, 6}, DType::f32, qkv), out, lse, a));
    const Values got = machine.get(out);
    CHECK(got[2] == 1);  // token 1 does not see it
    CHECK(std::isnan(got[4]));
    CHECK(std::isnan(got[6]));
  });
}

TEST_CASE("attention's backward: central differences in double, other types against it",
          "[attention][gradient]") {
  on_each([](Machine& machine) {
    if (!has_doubles(machine)) return;
    for (const HeadsAttr& a :
         {heads(4, 2, 3, 5), heads(3, 1, 2, 7, 0.4), heads(2, 2, 4, 140),
          with_values(heads(4, 2, 4, 6), 3), with_values(heads(2, 1, 2, 5), 6)}) {
      const bool large = a.sequence_length > 100;
      const int64_t tokens = large ? 140 : 2 * a.sequence_length, width = width_of(a),
                    out_width = a.query_heads * a.value_width();
      const Values x = rounded(draw(tokens * width, 2, 1.5), DType::bf16),
                   dy = rounded(draw(tokens * out_width, 3), DType::bf16);
      Values dx64;
      for (DType d : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
        INFO(dtype_name(d));
        const Tensor qkv = machine.put({tokens, width}, d, x),
                     out = machine.empty({tokens, out_width}, d),
                     lse = machine.empty({tokens, a.query_heads}, real_dtype(d)),
                     dx = machine.empty({tokens, width}, d);
        machine.launch(attention(qkv, out, lse, a));
        machine.launch(
            attention_backward(qkv, out, lse, machine.put({tokens, out_width}, d, dy), dx, a));
        if (d != DType::f64) {
          // `out` is rounded before the backward reads it, so its unit counts, not only that of dx.
          Tolerance t = tolerance(d, 200, 2);
          t.abs += 4 * half_ulp(d);
          expect(machine.get(dx), dx64, t, "dx");
          continue;
        }
        dx64 = machine.get(dx);
        expect_gradient(
            x, [&](const Values& v) { return plain_attention(v, a, tokens).out; }, dy, dx64, "qkv",
            large ? 131 : 1);
      }
    }
  });
}

TEST_CASE("rotary turns pairs (i, i + D/2) by position and back", "[rotary]") {
  on_each_type([](Machine& machine, DType d) {
    RotaryAttr a;
    a.query_heads = 2, a.kv_heads = 1, a.head_dim = 10, a.sequence_length = 300;
    a.scaling_factor = 4;
    const int64_t tokens = 600, width = 40;
    const Values x = rounded(draw(tokens * width, 4), d);
    Values want = x;
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t head = 0; head < 3; ++head)
        for (int64_t i = 0; i < 5; ++i) {
          const double angle = static_cast<double>(t % 300) / 4 *
                               std::pow(10000.0, -2.0 * static_cast<double>(i) / 10);
          const size_t u = static_cast<size_t>(t * width + head * 10 + i), v = u + 5;
          want[u] = x[u] * std::cos(angle) - x[v] * std::sin(angle);
          want[v] = x[u] * std::sin(angle) + x[v] * std::cos(angle);
        }
    const Tensor qkv = machine.put({tokens, width}, d, x);
    machine.launch(rotary(qkv, a));
    Tolerance t = tolerance(d, 2);
    if (d == DType::f64) t.abs = 1e-12;
    expect(machine.get(qkv), want, t, "turned");
    a.inverse = true;
    machine.launch(rotary(qkv, a));
    t.abs += 4 * half_ulp(d);
    expect(machine.get(qkv), x, t, "turned back");
  });
}

}  // namespace moetwin::conformance
