// Queries, keys and values of multi-head latent attention, and rotary frequencies with a ramp.

#include <catch2/catch.hpp>
#include <cmath>

#include "core/ops/attention.h"
#include "tests/conformance/gradient.h"

namespace moetwin::conformance {
namespace {

/// YaRN as published (arXiv 2309.00071): pairs below the ramp keep their frequency, those above it
/// are divided by the factor, between them the two are mixed.
double frequency(const RotaryAngles& a, int64_t i, int64_t dim) {
  const double plain = std::pow(a.base, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
  const double at = static_cast<double>(i);
  if (at <= a.ramp_begin) return plain;
  if (at >= a.ramp_end) return plain / a.scaling_factor;
  const double mixed = (at - a.ramp_begin) / (a.ramp_end - a.ramp_begin);
  return plain * (1 - mixed) + plain / a.scaling_factor * mixed;
}

/// `dim` elements from x on, pair (i, i + dim / 2) turned.
Values turned(const Values& x, size_t first, const RotaryAngles& a, int64_t position, int64_t dim) {
  Values out(static_cast<size_t>(dim));
  const auto half = static_cast<size_t>(dim / 2);
  for (size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * frequency(a, static_cast<int64_t>(i), dim);
    const double u = x[first + i], v = x[first + half + i];
    out[i] = a.magnitude * (u * std::cos(angle) - v * std::sin(angle));
    out[half + i] = a.magnitude * (u * std::sin(angle) + v * std::cos(angle));
  }
  return out;
}

LatentAttr latent(int64_t heads, int64_t nope, int64_t rope, int64_t value, int64_t sequence) {
  LatentAttr a;
  a.heads = heads, a.nope_dim = nope, a.rope_dim = rope, a.value_dim = value;
  a.sequence_length = sequence;
  a.base = 50, a.scaling_factor = 4, a.ramp_begin = 0.5, a.ramp_end = 2.5, a.magnitude = 1.25;
  return a;
}

/// The three inputs one behind the other, as one vector to differentiate by.
struct Widths {
  int64_t q, kv, rope, qkv;
  explicit Widths(const LatentAttr& a)
      : q(a.heads * (a.nope_dim + a.rope_dim)),
        kv(a.heads * (a.nope_dim + a.value_dim)),
        rope(a.rope_dim),
        qkv(2 * q + a.heads * a.value_dim) {}
};

Values plain_latent(const Values& x, const LatentAttr& a, int64_t tokens) {
  const Widths w(a);
  const auto kv = static_cast<size_t>(tokens * w.q),
             shared = kv + static_cast<size_t>(tokens * w.kv);
  Values out;
  const auto put = [&](const Values& from, size_t first, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out.push_back(from[first + static_cast<size_t>(i)]);
  };
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t position = t % a.sequence_length;
    for (int64_t h = 0; h < a.heads; ++h) {
      const auto at = static_cast<size_t>(t * w.q + h * (a.nope_dim + a.rope_dim));
      put(x, at, a.nope_dim);
      put(turned(x, at + static_cast<size_t>(a.nope_dim), a, position, a.rope_dim), 0, a.rope_dim);
    }
    const auto head = [&](int64_t h) {
      return kv + static_cast<size_t>(t * w.kv + h * (a.nope_dim + a.value_dim));
    };
    for (int64_t h = 0; h < a.heads; ++h) {
      put(x, head(h), a.nope_dim);
      put(turned(x, shared + static_cast<size_t>(t * w.rope), a, position, a.rope_dim), 0,
          a.rope_dim);
    }
    for (int64_t h = 0; h < a.heads; ++h)
      put(x, head(h) + static_cast<size_t>(a.nope_dim), a.value_dim);
  }
  return out;
}

Values part(const Values& x, int64_t first, int64_t n) {
  return {x.begin() + first, x.begin() + first + n};
}

}  // namespace

TEST_CASE("latent attention's heads are put together from their parts, one rotated key for all",
          "[latent]") {
  on_each_type([](Machine& machine, DType d) {
    for (const auto& [a, tokens] : {std::pair{latent(3, 4, 8, 5, 7), int64_t{14}},
                                    std::pair{latent(1, 0, 2, 1, 1), int64_t{3}},
                                    std::pair{latent(40, 16, 6, 12, 20), int64_t{20}},
                                    std::pair{latent(2, 3, 4, 2, 5), int64_t{0}}}) {
      const Widths w(a);
      const Values x = rounded(draw(tokens * (w.q + w.kv + w.rope), 11), d);
      const Tensor q = machine.put({tokens, w.q}, d, part(x, 0, tokens * w.q)),
                   kv = machine.put({tokens, w.kv}, d, part(x, tokens * w.q, tokens * w.kv)),
                   rope = machine.put({tokens, w.rope}, d,
                                      part(x, tokens * (w.q + w.kv), tokens * w.rope)),
                   out = machine.empty({tokens, w.qkv}, d);
      machine.launch(latent_qkv(q, kv, rope, out, a));
      Tolerance t = tolerance(d, 4);
      if (d == DType::f64) t.abs = 1e-12;
      expect(machine.get(out), plain_latent(x, a, tokens), t, "qkv");
    }
  });
}

TEST_CASE("their backward: central differences in double, other types against it",
          "[latent][gradient]") {
  on_each([](Machine& machine) {
    if (!has_doubles(machine)) return;
    const LatentAttr a = latent(3, 4, 8, 5, 4);
    const int64_t tokens = 8;
    const Widths w(a);
    const Values x = rounded(draw(tokens * (w.q + w.kv + w.rope), 12), DType::bf16),
                 dy = rounded(draw(tokens * w.qkv, 13), DType::bf16);
    Values dx64;
    for (DType d : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      INFO(dtype_name(d));
      const Tensor dq = machine.empty({tokens, w.q}, d), dkv = machine.empty({tokens, w.kv}, d),
                   drope = machine.empty({tokens, w.rope}, d);
      machine.launch(latent_qkv_backward(machine.put({tokens, w.qkv}, d, dy), dq, dkv, drope, a));
      Values dx = machine.get(dq);
      for (const Tensor& more : {dkv, drope}) {
        const Values values = machine.get(more);
        dx.insert(dx.end(), values.begin(), values.end());
      }
      if (d == DType::f64) {
        dx64 = dx;
        expect_gradient(
            x, [&](const Values& v) { return plain_latent(v, a, tokens); }, dy, dx64, "inputs");
      } else {
        expect(dx, dx64, tolerance(d, 8, 2), "dx");
      }
    }
  });
}

TEST_CASE("rotary frequencies with a ramp and a magnitude", "[rotary]") {
  on_each_type([](Machine& machine, DType d) {
    RotaryAttr a;
    static_cast<RotaryAngles&>(a) = latent(1, 1, 2, 1, 1);
    a.query_heads = 2, a.kv_heads = 1, a.head_dim = 10, a.sequence_length = 30;
    const int64_t tokens = 60, width = 40;
    const Values x = rounded(draw(tokens * width, 14), d);
    Values want = x;
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t head = 0; head < 3; ++head) {
        const auto at = static_cast<size_t>(t * width + head * 10);
        const Values y = turned(x, at, a, t % 30, 10);
        std::copy(y.begin(), y.end(), want.begin() + static_cast<std::ptrdiff_t>(at));
      }
    const Tensor qkv = machine.put({tokens, width}, d, x);
    machine.launch(rotary(qkv, a));
    Tolerance t = tolerance(d, 2);
    if (d == DType::f64) t.abs = 1e-12;
    expect(machine.get(qkv), want, t, "turned");
  });
}

}  // namespace moetwin::conformance
