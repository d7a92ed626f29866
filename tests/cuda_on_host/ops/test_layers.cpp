#include <catch2/catch.hpp>

#include "core/ops/attention.h"
#include "core/ops/embedding.h"
#include "core/ops/isa.h"
#include "core/ops/loss.h"
#include "core/ops/norm.h"
#include "tests/cuda_on_host/ops/compare.h"

namespace moetwin::cuda_on_host {

TEST_CASE("norms and their gradients") {
  Inputs in(1);
  each_real([&](DType d) {
    for (NormKind kind : {NormKind::layer, NormKind::rms})
      for (const auto& [rows, n] :
           {std::pair<int64_t, int64_t>{5, 64}, {3, 1}, {300, 33}, {2, 4104}})
        for (DType weights : {d, DType::f32}) {
          INFO("rows " << rows << " n " << n);
          const bool layer = kind == NormKind::layer;
          NormAttr attr;
          attr.kind = kind;
          const Tensor x = in.real({rows, n}, d, -2, 3), gamma = in.real({n}, weights, 0.5, 1.5);
          const Tensor mean = layer ? in.output({rows}, DType::f32) : Tensor{};
          compare(norm(x, gamma, layer ? in.real({n}, weights) : Tensor{}, in.output({rows, n}, d),
                       mean, in.output({rows}, DType::f32), attr),
                  {16, 32});
          const Tensor kept_mean = layer ? in.real({rows}, DType::f32) : Tensor{};
          compare(
              norm_backward(x, gamma, kept_mean, in.real({rows}, DType::f32, 0.5, 2),
                            in.real({rows, n}, d), in.output({rows, n}, d), in.real({n}, weights),
                            layer ? in.real({n}, weights) : Tensor{}, attr),
              {16, 32});
        }
  });
}

HeadsAttr heads(int64_t query, int64_t key, int64_t dim, int64_t sequence) {
  HeadsAttr attr;
  attr.query_heads = query;
  attr.kv_heads = key;
  attr.head_dim = dim;
  attr.sequence_length = sequence;
  return attr;
}

TEST_CASE("norm and rotation of query and key heads") {
  Inputs in(2);
  each_real([&](DType d) {
    for (int64_t dim : {8, 34}) {
      const HeadsAttr attr = heads(4, 2, dim, 7);
      const int64_t tokens = 21, width = 8 * dim;
      const Tensor qkv = in.real({tokens, width}, d), q = in.real({dim}, d, 0.5, 1.5),
                   k = in.real({dim}, d, 0.5, 1.5);
      compare(qk_norm(qkv, q, k, in.output({tokens, width}, d), in.output({tokens, 6}, DType::f32),
                      attr),
              {16, 16});
      compare(qk_norm_backward(qkv, q, k, in.real({tokens, 6}, DType::f32, 0.5, 2),
                               in.real({tokens, width}, d), in.output({tokens, width}, d),
                               in.real({dim}, DType::f32), in.real({dim}, DType::f32), attr),
              {16, 32});
      RotaryAttr turn;
      turn.query_heads = 4;
      turn.kv_heads = 2;
      turn.head_dim = dim;
      turn.sequence_length = 7;
      turn.scaling_factor = 1.5;
      for (const bool inverse : {false, true}) {
        turn.inverse = inverse;
        compare(rotary(in.real({tokens, width}, d), turn), {4, 4});
      }
      LatentAttr latent;
      latent.heads = 5, latent.nope_dim = dim, latent.rope_dim = 8, latent.value_dim = 6;
      latent.sequence_length = 7;
      latent.ramp_begin = 0.5, latent.ramp_end = 3, latent.magnitude = 1.1;
      const int64_t q_width = 5 * (dim + 8), kv_width = 5 * (dim + 6), all = 2 * q_width + 30;
      compare(latent_qkv(in.real({tokens, q_width}, d), in.real({tokens, kv_width}, d),
                         in.real({tokens, 8}, d), in.output({tokens, all}, d), latent),
              {4, 4});
      compare(
          latent_qkv_backward(in.real({tokens, all}, d), in.output({tokens, q_width}, d),
                              in.output({tokens, kv_width}, d), in.output({tokens, 8}, d), latent),
          {8, 16});
    }
  });
}

TEST_CASE("attention and its gradient: odd sizes, grouped heads, wide heads") {
  Inputs in(3);
  struct Case {
    int64_t query, key, dim, sequence, sequences;
    double scale;
    int64_t value = 0;
  };
  // One token; below one tile; beyond it, with heads that no vector fits; several tiles of queries
  // and keys; heads too wide for the matrix tile; values narrower and wider than keys.
  for (const Case& c : {Case{1, 1, 8, 1, 2, 0},
                        {2, 1, 16, 5, 2, 0},
                        {2, 2, 20, 67, 1, 0.2},
                        {4, 2, 32, 130, 1, 0},
                        {1, 1, 72, 70, 1, 0},
                        {1, 1, 136, 33, 1, 0},
                        {2, 2, 24, 67, 1, 0, 16},
                        {2, 1, 12, 40, 1, 0, 20}})
    each_real([&](DType d) {
      INFO("heads of " << c.dim << ", sequence " << c.sequence);
      HeadsAttr attr = heads(c.query, c.key, c.dim, c.sequence);
      attr.scale = c.scale;
      attr.value_dim = c.value;
      const int64_t tokens = c.sequence * c.sequences, out_width = c.query * attr.value_width(),
                    width = (c.query + c.key) * c.dim + c.key * attr.value_width();
      const Tensor qkv = in.real({tokens, width}, d, -2, 2);
      const Tensor out = in.output({tokens, out_width}, d);
      const Tensor lse = in.output({tokens, c.query}, DType::f32);
      // Probabilities are rounded to 16 bits before they meet the values.
      compare(attention(qkv, out, lse, attr), {16, 8, d});
      // The saved statistics as the reference computes them.
      ReferenceCall forward;
      const OpCall call = attention(qkv, out, lse, attr);
      forward.op = call.op;
      forward.attributes = call.attributes;
      for (int i = 0; i < 3; ++i)
        forward.tensors[static_cast<size_t>(i)] = {call[i].data(), call[i].shape, call[i].dtype};
      reference_of(*call.op, Isa::x86_64)(forward);
      compare(attention_backward(qkv, out, lse, in.real({tokens, out_width}, d),
                                 in.output({tokens, width}, d), attr),
              {32, 32, d});
    });
}

TEST_CASE("embedding rows are looked up, and their gradients added in ascending token") {
  Inputs in(4);
  each_real([&](DType d) {
    for (int64_t h : {24, 7})
      for (const bool learned : {false, true})
        for (int64_t vocabulary : {3, 700}) {
          const int64_t tokens = 60, s = 12;
          const Tensor ids = in.whole({tokens}, DType::i32, 0, vocabulary - 1);
          EmbedAttr attr;
          attr.sequence_length = s;
          compare(embed(ids, in.real({vocabulary, h}, d), learned ? in.real({s, h}, d) : Tensor{},
                        in.output({tokens, h}, d), attr),
                  {2, 0});
          compare(embed_backward(ids, in.real({tokens, h}, d), in.real({vocabulary, h}, DType::f32),
                                 learned ? in.real({s, h}, DType::f32) : Tensor{}, attr),
                  {0, 0});  // the same order: bit for bit
        }
  });
}

TEST_CASE("cross-entropy, with tokens that do not count and logits far apart") {
  Inputs in(5);
  each_real([&](DType d) {
    for (int64_t v : {1, 7, 512, 4203})
      for (double gradient : {0.0, 0.02}) {
        const int64_t tokens = 19;
        CrossEntropyAttr attr;
        attr.gradient_scale = gradient;
        compare(cross_entropy(in.real({tokens, v}, d, -30, 30),
                              in.whole({tokens}, DType::i32, -1, v - 1),
                              in.list({2}, DType::f32, {3, 4}), attr),
                {32, 32});
      }
  });
}

TEST_CASE("parts of a vocabulary: rows, statistics and cross-entropy") {
  Inputs in(6);
  each_real([&](DType d) {
    for (int64_t columns : {1, 9, 4203})
      for (int64_t classes : {int64_t{0}, columns}) {
        const int64_t tokens = 19, first = 5, vocabulary = first + columns + 3;
        const Tensor targets = in.whole({tokens}, DType::i32, -1, vocabulary - 1);
        const Tensor logits = in.real({tokens, columns}, d, -30, 30);
        const VocabPartAttr part{first, classes, vocabulary};
        if (classes > 0)
          compare(vocab_statistics(logits, targets, in.output({3, tokens}, DType::f32), part),
                  {32, 32});
        const Tensor statistics = in.real({6, tokens}, DType::f32, 30, 40);
        for (double gradient : {0.0, 0.02})
          compare(vocab_cross_entropy(logits, targets, statistics, in.list({2}, DType::f32, {3, 4}),
                                      {part, gradient, 2}),
                  {32, 32});

        EmbedAttr embedding;
        embedding.sequence_length = tokens;
        embedding.first_row = first;
        embedding.vocabulary = vocabulary;
        const Tensor ids = in.whole({tokens}, DType::i32, 0, vocabulary - 1);
        compare(embed(ids, in.real({columns, 24}, d), {}, in.output({tokens, 24}, d), embedding),
                {1, 1});
        compare(embed_backward(ids, in.real({tokens, 24}, d), in.real({columns, 24}, DType::f32),
                               {}, embedding),
                {8, 8});
      }
  });
}

}  // namespace moetwin::cuda_on_host
