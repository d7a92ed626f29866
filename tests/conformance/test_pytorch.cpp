// Values and gradients against PyTorch's in double.

#include <catch2/catch.hpp>
#include <cmath>

#include "core/ops/activation.h"
#include "core/ops/attention.h"
#include "core/ops/embedding.h"
#include "core/ops/gemm.h"
#include "core/ops/loss.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/router.h"
#include "tests/conformance/fixture.h"

namespace moetwin::conformance {
namespace {

/// The fixtures have 16 digits.
Tolerance against(DType d, double terms, double size = 1) {
  Tolerance t = tolerance(d, terms, size);
  t.abs += 1e-14 * size;
  return t;
}

}  // namespace

TEST_CASE("PyTorch: embedding", "[pytorch][embed]") {
  const Fixture f = fixture("embedding");
  on_each_type([&](Machine& m, DType d) {
    const EmbedAttr a{f.integer("sequence_length")};
    const Tensor ids = f.put(m, "ids", DType::i32), out = f.empty(m, "result", d),
                 dt = f.zeros(m, "table", real_dtype(d)),
                 dp = f.zeros(m, "positions", real_dtype(d));
    m.launch(embed(ids, f.put(m, "table", d), f.put(m, "positions", d), out, a));
    m.launch(embed_backward(ids, f.put(m, "upstream", d), dt, dp, a));
    expect(m.get(out), f.values("result"), against(d, 2), "out");
    expect(m.get(dt), f.values("d_table"), against(real_dtype(d), 8), "d_table");
    expect(m.get(dp), f.values("d_positions"), against(real_dtype(d), 2), "d_positions");
  });
}

TEST_CASE("PyTorch: LayerNorm and RMSNorm", "[pytorch][norm]") {
  for (const char* name : {"layer_norm", "rms_norm"}) {
    const Fixture f = fixture(name);
    on_each_type([&](Machine& m, DType d) {
      INFO(name);
      const bool layer = std::string(name) == "layer_norm";
      const NormAttr a{layer ? NormKind::layer : NormKind::rms, f.number("epsilon")};
      const DType real = real_dtype(d);
      const Tensor x = f.put(m, "x", d), gamma = f.put(m, "gamma", d), y = f.empty(m, "x", d),
                   mean = layer ? m.empty({7}, real) : Tensor{}, rstd = m.empty({7}, real),
                   dx = f.empty(m, "x", d), dg = f.zeros(m, "gamma", real),
                   db = layer ? f.zeros(m, "beta", real) : Tensor{};
      m.launch(norm(x, gamma, layer ? f.put(m, "beta", d) : Tensor{}, y, mean, rstd, a));
      m.launch(norm_backward(x, gamma, mean, rstd, f.put(m, "upstream", d), dx, dg, db, a));
      expect(m.get(y), f.values("result"), against(d, 30, 2), "y");
      expect(m.get(dx), f.values("d_x"), against(d, 40, 2), "dx");
      expect(m.get(dg), f.values("d_gamma"), against(real, 40, 2), "d_gamma");
      if (layer) expect(m.get(db), f.values("d_beta"), against(real, 10), "d_beta");
    });
  }
}

TEST_CASE("PyTorch: GELU and SwiGLU", "[pytorch][gelu][swiglu]") {
  on_each_type([&](Machine& m, DType d) {
    for (const bool tanh_form : {false, true}) {
      const Fixture f = fixture(tanh_form ? "gelu_tanh" : "gelu");
      const Tensor x = f.put(m, "x", d), y = f.empty(m, "x", d), dx = f.empty(m, "x", d);
      m.launch(gelu(x, y, {tanh_form}));
      m.launch(gelu_backward(x, f.put(m, "upstream", d), dx, {tanh_form}));
      expect(m.get(y), f.values("result"), against(d, 16), "gelu");
      expect(m.get(dx), f.values("d_x"), against(d, 16), "gelu's dx");
    }
    const Fixture f = fixture("swiglu");
    const Tensor x = f.put(m, "x", d), y = f.empty(m, "result", d), dx = f.empty(m, "x", d);
    m.launch(swiglu(x, y));
    m.launch(swiglu_backward(x, f.put(m, "upstream", d), dx));
    expect(m.get(y), f.values("result"), against(d, 4, 16), "swiglu");
    expect(m.get(dx), f.values("d_x"), against(d, 4, 16), "swiglu's dx");
  });
}

TEST_CASE("PyTorch: linear layer with GELU", "[pytorch][gemm]") {
  const Fixture f = fixture("linear_gelu");
  on_each_type([&](Machine& m, DType d) {
    const DType real = real_dtype(d);
    const Tensor x = f.put(m, "x", d), w = f.put(m, "w", d), y = f.empty(m, "result", d),
                 pre = f.empty(m, "result", real), g = f.put(m, "upstream", real),
                 dx = f.empty(m, "x", real), dw = f.zeros(m, "w", real), db = f.zeros(m, "b", real);
    GemmAttr forward, input, weight;
    forward.epilogue = Epilogue::gelu;
    input.transpose_b = true;
    weight.transpose_a = weight.accumulate = true;
    m.launch(gemm(x, w, f.put(m, "b", d), y, pre, forward));
    expect(m.get(y), f.values("result"), with_rounding(against(d, 24), m, d, 1), "y");
    if (d != real) return;  // the gradients below mix types no layer mixes
    m.launch(gelu_backward(pre, g, g, {}));
    m.launch(gemm(g, w, {}, dx, {}, input));
    m.launch(gemm(x, g, {}, dw, {}, weight));
    m.launch(bias_grad(g, db));
    expect(m.get(dx), f.values("d_x"), against(d, 24), "dx");
    expect(m.get(dw), f.values("d_w"), against(d, 40), "dw");
    expect(m.get(db), f.values("d_b"), against(d, 40), "db");
  });
}

TEST_CASE("PyTorch: causal attention with grouped-query heads", "[pytorch][attention]") {
  const Fixture f = fixture("attention");
  HeadsAttr a;
  a.query_heads = f.integer("query_heads"), a.kv_heads = f.integer("kv_heads");
  a.head_dim = f.integer("head_dim"), a.sequence_length = f.integer("sequence_length");
  on_each_type([&](Machine& m, DType d) {
    const Tensor qkv = f.put(m, "qkv", d), out = f.empty(m, "result", d),
                 lse = f.empty(m, "lse", real_dtype(d)), dx = f.empty(m, "qkv", d);
    m.launch(attention(qkv, out, lse, a));
    m.launch(attention_backward(qkv, out, lse, f.put(m, "upstream", d), dx, a));
    expect(m.get(out), f.values("result"), with_rounding(against(d, 60, 2), m, d, 2), "out");
    expect(m.get(lse), f.values("lse"), against(real_dtype(d), 30, 4), "lse");
    Tolerance t = against(d, 200, 2);
    if (d != real_dtype(d)) t.abs += 4 * half_ulp(d);  // `out` is rounded before it is read again
    expect(m.get(dx), f.values("d_qkv"), t, "d_qkv");
  });
}

TEST_CASE("PyTorch: rotary positions, scaled", "[pytorch][rotary]") {
  const Fixture f = fixture("rotary");
  RotaryAttr a;
  a.query_heads = f.integer("query_heads"), a.kv_heads = f.integer("kv_heads");
  a.head_dim = f.integer("head_dim"), a.sequence_length = f.integer("sequence_length");
  a.base = f.number("base"), a.scaling_factor = f.number("scaling_factor");
  on_each_type([&](Machine& m, DType d) {
    const Tensor qkv = f.put(m, "qkv", d), g = f.put(m, "upstream", d);
    m.launch(rotary(qkv, a));
    expect(m.get(qkv), f.values("result"), against(d, 4), "turned");
    RotaryAttr back = a;
    back.inverse = true;
    m.launch(rotary(g, back));
    expect(m.get(g), f.values("d_qkv"), against(d, 4), "gradient");
  });
}

TEST_CASE("PyTorch: cross-entropy", "[pytorch][cross_entropy]") {
  const Fixture f = fixture("cross_entropy");
  on_each_type([&](Machine& m, DType d) {
    const Tensor logits = f.put(m, "logits", d), sums = m.put({2}, real_dtype(d), {0, 0});
    m.launch(
        cross_entropy(logits, f.put(m, "targets", DType::i32), sums, {f.values("upstream")[0]}));
    expect(m.get(sums), {f.values("result")[0], 11}, against(real_dtype(d), 60, 4), "sums");
    expect(m.get(logits), f.values("d_logits"), against(d, 4, 0.125), "gradient");
  });
}

TEST_CASE("PyTorch: five steps of clipped AdamW", "[pytorch][adamw][clip]") {
  const Fixture f = fixture("adamw");
  on_each([&](Machine& m) {
    for (DType d : m.real_types()) {
      if (d != real_dtype(d)) continue;
      const Values gradients = f.values("gradients"), norms = f.values("norms");
      const Tensor p = f.put(m, "start", d), s = f.zeros(m, "m", d), v = f.zeros(m, "v", d),
                   clip = m.empty({2}, d);
      const Shape n = f.shape("start");
      for (int64_t step = 1; step <= 5; ++step) {
        const auto first = gradients.begin() + (step - 1) * n[0];
        const Tensor g = m.put(n, d, Values(first, first + n[0]));
        const Tensor squares = m.put({2}, d, {0, 1});
        m.launch(sum_squares(g, squares.slice(0, {1})));
        m.launch(clip_factor(squares, clip, {f.number("max_norm"), 1}));
        expect({m.get(clip)[1]}, {norms[static_cast<size_t>(step - 1)]}, against(d, 8), "norm");
        AdamWAttr a;
        a.learning_rate = f.number("learning_rate"), a.weight_decay = f.number("weight_decay");
        a.beta1 = f.number("beta1"), a.beta2 = f.number("beta2"), a.epsilon = f.number("epsilon");
        a.step = step;
        m.launch(adamw(p, g, s, v, clip.slice(0, {1}), a));
      }
      expect(m.get(p), f.values("result"), against(d, 10, 0.2), "parameter");
      expect(m.get(s), f.values("m"), against(d, 10), "m");
      expect(m.get(v), f.values("v"), against(d, 10), "v");
    }
  });
}

TEST_CASE("PyTorch: router weights, balance loss and z-loss", "[pytorch][router][P057]") {
  for (const char* name :
       {"router_softmax", "router_softmax_raw", "router_sigmoid", "router_top1"}) {
    const Fixture f = fixture(name);
    on_each([&](Machine& m) {
      for (DType d : m.real_types()) {
        if (d != real_dtype(d)) continue;
        INFO(name << " in " << dtype_name(d));
        const Shape shape = f.shape("logits");
        const int64_t tokens = shape[0], experts = shape[1], k = f.integer("top_k");
        SelectAttr s;
        s.score = f.attributes["score"].asString() == "softmax" ? Score::softmax : Score::sigmoid;
        s.top_k = k;
        s.p_norm = f.attributes["normalised"].asBool() ? 1 : 0;
        RouterLossAttr a;
        a.score = s.score, a.top_k = k, a.p_norm = s.p_norm;
        a.aux = f.number("aux"), a.z = f.number("z");
        const Tensor logits = f.put(m, "logits", d), probs = m.empty(shape, d),
                     weights = m.empty({tokens, k}, d), ids = m.empty({tokens, k}, DType::i32),
                     counts = m.empty({experts + 1}, DType::i64),
                     losses =
                         m.put({4 + experts}, d, Values(static_cast<size_t>(4 + experts), 0.0)),
                     dl = m.empty(shape, d);
        m.launch(router_select(logits, {}, probs, weights, ids, counts, s));
        m.launch(router_losses(logits, probs, ids, {}, losses, a));
        expect_equal(m.get(ids), f.values("ids"), "ids");
        Values got = m.get(weights);
        const Values l = m.get(losses);
        got.push_back(l[0]);
        got.push_back(l[1]);
        expect(got, f.values("result"), against(d, 20), "weights and losses");
        Values dw = f.values("upstream");
        dw.resize(static_cast<size_t>(tokens * k));
        m.launch(
            router_backward(logits, probs, ids, weights, m.put({tokens, k}, d, dw), {}, dl, a));
        expect(m.get(dl), f.values("d_logits"), against(d, 20), "d_logits");
      }
    });
  }
}

}  // namespace moetwin::conformance
