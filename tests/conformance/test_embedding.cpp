// Embedding and cross-entropy: the two ends of the model.

#include <catch2/catch.hpp>
#include <cmath>

#include "core/ops/embedding.h"
#include "core/ops/loss.h"
#include "tests/conformance/gradient.h"

namespace moetwin::conformance {

TEST_CASE("embedding gathers rows and adds positions; its backward adds them up", "[embed]") {
  on_each_type([](Machine& machine, DType d) {
    const int64_t s = 13, tokens = 26, v = 11, h = 1030;
    Values ids;
    for (int64_t t = 0; t < tokens; ++t) ids.push_back(static_cast<double>(t * 7 % 5 + t % 3));
    const Values table = rounded(draw(v * h, 1), d), positions = rounded(draw(s * h, 2), d);
    const Values dy = rounded(draw(tokens * h, 3), d);
    const Tensor ti = machine.put({tokens}, DType::i32, ids);
    for (const bool with : {true, false}) {
      Values want;
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t i = 0; i < h; ++i)
          want.push_back(table[static_cast<size_t>(ids[static_cast<size_t>(t)]) * 1030 +
                               static_cast<size_t>(i)] +
                         (with ? positions[static_cast<size_t>(t % s * h + i)] : 0));
      const Tensor out = machine.empty({tokens, h}, d);
      machine.launch(embed(ti, machine.put({v, h}, d, table),
                           with ? machine.put({s, h}, d, positions) : Tensor{}, out, {s}));
      expect(machine.get(out), want, tolerance(d), "out");

      const DType wide = real_dtype(d);
      const Tensor dt = machine.put({v, h}, wide, Values(table.size(), 1.0));
      const Tensor dp = with ? machine.put({s, h}, wide, Values(positions.size(), 2.0)) : Tensor{};
      machine.launch(embed_backward(ti, machine.put({tokens, h}, d, dy), dt, dp, {s}));
      Values want_t(table.size(), 1.0), want_p(positions.size(), 2.0);
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t i = 0; i < h; ++i) {
          const double g = dy[static_cast<size_t>(t * h + i)];
          want_t[static_cast<size_t>(ids[static_cast<size_t>(t)]) * 1030 +
                 static_cast<size_t>(i)] += g;
          want_p[static_cast<size_t>(t % s * h + i)] += g;
        }
      expect(machine.get(dt), want_t, tolerance(wide, 8, 4), "d_table");
      if (with) expect(machine.get(dp), want_p, tolerance(wide, 4, 4), "d_positions");
    }
  });
}

TEST_CASE("embedding adds its offset to every element", "[embed]") {
  on_each_type([](Machine& machine, DType d) {
    // All values have few bits, so that sums are exact in every type; 7 columns and 8: odd rows and
    // rows that are read in packs.
    for (const int64_t h : {7, 8}) {
      Values table, want;
      for (int64_t i = 0; i < 3 * h; ++i) table.push_back(0.25 * static_cast<double>(i));
      const Values ids = {2, 0, 2, 1};
      for (const double id : ids)
        for (int64_t i = 0; i < h; ++i)
          want.push_back(0.25 * (id * static_cast<double>(h) + static_cast<double>(i)) - 1.5 + 4);
      const Tensor out = machine.empty({4, h}, d);
      machine.launch(embed(machine.put({4}, DType::i32, ids), machine.put({3, h}, d, table),
                           machine.put({2, h}, d, Values(static_cast<size_t>(2 * h), 4.0)), out,
                           {2, -1.5}));
      expect_equal(machine.get(out), want, "out");
    }
  });
}

TEST_CASE("parts of a vocabulary: their embeddings sum to the whole one's", "[embed]") {
  on_each_type([](Machine& machine, DType d) {
    const int64_t s = 5, tokens = 10, v = 11, h = 40, rows = 4;  // parts of 4, 4 and 3 rows
    Values ids;
    for (int64_t t = 0; t < tokens; ++t) ids.push_back(static_cast<double>(t * 7 % v));
    const Values table = rounded(draw(v * h, 1), d), dy = rounded(draw(tokens * h, 3), d);
    const Tensor ti = machine.put({tokens}, DType::i32, ids);
    const auto from = [&](int64_t row) { return table.begin() + row * h; };
    Values sum(static_cast<size_t>(tokens * h), 0.0);
    for (int64_t first = 0; first < v; first += rows) {
      EmbedAttr attr;
      attr.sequence_length = s;
      attr.first_row = first;
      attr.vocabulary = v;
      const int64_t mine = std::min(rows, v - first);
      Values part(from(first), from(first + mine));
      part.resize(static_cast<size_t>(rows * h), 0.0);  // padding
      const Tensor out = machine.empty({tokens, h}, d);
      machine.launch(embed(ti, machine.put({rows, h}, d, part), {}, out, attr));
      const Values got = machine.get(out);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += got[i];
      const Tensor dt = machine.put({rows, h}, real_dtype(d), Values(part.size(), 0.0));
      machine.launch(embed_backward(ti, machine.put({tokens, h}, d, dy), dt, {}, attr));
      Values want(part.size(), 0.0);
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t row = t * 7 % v - first;
        if (row < 0 || row >= mine) continue;
        for (int64_t i = 0; i < h; ++i)
          want[static_cast<size_t>(row * h + i)] += dy[static_cast<size_t>(t * h + i)];
      }
      expect(machine.get(dt), want, tolerance(real_dtype(d), 4, 4), "d_table");
    }
    Values want;
    for (int64_t t = 0; t < tokens; ++t)
      want.insert(want.end(), from(t * 7 % v), from(t * 7 % v + 1));
    expect_equal(sum, want, "sum of the parts");
  });
}

TEST_CASE("repeated ids give the same bits every time", "[embed][P171]") {
  on_each([](Machine& machine) {
    const Tensor ids = machine.put({64}, DType::i32, Values(64, 2.0));
    const Tensor dy = machine.put({64, 33}, DType::f32, draw(64 * 33, 4));
    Values first;
    for (int run = 0; run < 20; ++run) {
      const Tensor dt = machine.put({3, 33}, DType::f32, Values(99, 0.0));
      machine.launch(embed_backward(ids, dy, dt, {}, {64}));
      if (run == 0) first = machine.get(dt);
      expect_equal(machine.get(dt), first, "d_table");
    }
  });
}

TEST_CASE("cross-entropy: sums, gradient, tokens that do not count", "[cross_entropy][gradient]") {
  on_each_type([](Machine& machine, DType d) {
    const int64_t tokens = 13, v = 37;
    const double scale = 0.125;
    const Values x = rounded(draw(tokens * v, 5, 4), d);
    Values targets;
    for (int64_t t = 0; t < tokens; ++t)
      targets.push_back(t % 5 == 3 ? -1 : static_cast<double>(t * 11 % v));
    double loss = 0, valid = 0;
    Values want(x.size(), 0.0);
    for (int64_t t = 0; t < tokens; ++t) {
      const double target = targets[static_cast<size_t>(t)];
      if (target < 0) continue;
      const double* row = x.data() + t * v;
      double sum = 0;
      for (int64_t i = 0; i < v; ++i) sum += std::exp(row[i]);
      loss += std::log(sum) - row[static_cast<int64_t>(target)];
      valid += 1;
      for (int64_t i = 0; i < v; ++i)
        want[static_cast<size_t>(t * v + i)] =
            scale * (std::exp(row[i]) / sum - (i == static_cast<int64_t>(target)));
    }
    const Tensor tt = machine.put({tokens}, DType::i32, targets);
    const Tensor sums = machine.put({2}, real_dtype(d), {10, 1});
    const Tensor logits = machine.put({tokens, v}, d, x);
    machine.launch(cross_entropy(logits, tt, sums, {0}));
    expect(machine.get(sums), {10 + loss, 1 + valid}, tolerance(real_dtype(d), 60), "sums");
    expect_equal(machine.get(logits), x, "logits are left as they are");
    machine.launch(cross_entropy(logits, tt, sums, {scale}));
    expect(machine.get(sums), {10 + 2 * loss, 1 + 2 * valid}, tolerance(real_dtype(d), 90), "sums");
    expect(machine.get(logits), want, tolerance(d, 2, scale), "gradient");
    if (d != DType::f64) return;
    expect_gradient(
        x,
        [&](const Values& at) {
          const Tensor s = machine.put({2}, d, {0, 0});
          machine.launch(cross_entropy(machine.put({tokens, v}, d, at), tt, s, {0}));
          return Values{machine.get(s)[0]};
        },
        {scale}, machine.get(logits), "logits");
  });
}

TEST_CASE("cross-entropy over parts of the vocabulary is that over the whole", "[cross_entropy]") {
  on_each_type([](Machine& machine, DType d) {
    // 10 classes in parts of 4 columns: 4, 4, 2 and two of padding; a fourth part is all padding.
    const int64_t tokens = 9, v = 10, columns = 4, parts = 4;
    const double scale = 0.25;
    const Values x = rounded(draw(tokens * v, 8, 5), d);
    Values targets;
    for (int64_t t = 0; t < tokens; ++t)
      targets.push_back(t == 4 ? -1 : static_cast<double>(t * 3 % v));
    const Tensor tt = machine.put({tokens}, DType::i32, targets);
    std::vector<Tensor> logits;
    const Tensor statistics = machine.empty({3 * parts, tokens}, real_dtype(d));
    std::vector<VocabPartAttr> attrs;
    for (int64_t p = 0; p < parts; ++p) {
      const int64_t first = std::min(p * columns, v);
      attrs.push_back({first, std::min(columns, v - first), v});
      Values mine;
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t i = 0; i < columns; ++i)
          mine.push_back(first + i < v && i < attrs.back().classes
                             ? x[static_cast<size_t>(t * v + first + i)]
                             : 100.0);  // padding must not count, whatever it holds
      logits.push_back(machine.put({tokens, columns}, d, mine));
      machine.launch(vocab_statistics(logits.back(), tt, statistics.rows(3 * p, 3), attrs.back()));
    }
    double loss = 0, valid = 0;
    Values want(x.size(), 0.0);
    for (int64_t t = 0; t < tokens; ++t) {
      const double target = targets[static_cast<size_t>(t)];
      if (target < 0) continue;
      const double* row = x.data() + t * v;
      double sum = 0;
      for (int64_t i = 0; i < v; ++i) sum += std::exp(row[i]);
      loss += std::log(sum) - row[static_cast<int64_t>(target)];
      valid += 1;
      for (int64_t i = 0; i < v; ++i)
        want[static_cast<size_t>(t * v + i)] =
            scale * (std::exp(row[i]) / sum - (i == static_cast<int64_t>(target)));
    }
    for (int64_t p = 0; p < parts; ++p) {
      const VocabPartAttr& attr = attrs[static_cast<size_t>(p)];
      const Tensor sums = machine.put({2}, real_dtype(d), {10, 1});
      machine.launch(vocab_cross_entropy(logits[static_cast<size_t>(p)], tt, statistics, sums,
                                         {attr, scale, parts}));
      expect(machine.get(sums), {10 + loss, 1 + valid}, tolerance(real_dtype(d), 90), "sums");
      Values part;
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t i = 0; i < columns; ++i)
          part.push_back(i < attr.classes ? want[static_cast<size_t>(t * v + attr.first + i)] : 0);
      expect(machine.get(logits[static_cast<size_t>(p)]), part, tolerance(d, 4, scale), "gradient");
    }
  });
}

TEST_CASE("cross-entropy of large logits neither overflows nor loses the rest", "[cross_entropy]") {
  on_each([](Machine& machine) {
    const Tensor sums = machine.put({2}, DType::f32, {0, 0});
    machine.launch(cross_entropy(machine.put({2, 3}, DType::f32, {1000, 0, 0, -1000, -1000, -1000}),
                                 machine.put({2}, DType::i32, {1, 2}), sums, {0}));
    expect(machine.get(sums), {1000 + std::log(3.0), 2}, tolerance(DType::f32, 4), "sums");
  });
}

}  // namespace moetwin::conformance
