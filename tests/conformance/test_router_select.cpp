// Router scores, selection and weights.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "core/ops/router.h"
#include "tests/conformance/machine.h"

namespace moetwin::conformance {
namespace {

struct Selected {
  Values probs, weights, ids, counts;
};
Selected select(Machine& machine, DType d, int64_t tokens, int64_t experts, const Values& logits,
                const SelectAttr& a, const Values& bias = {}) {
  const Tensor probs = machine.empty({tokens, experts}, d),
               weights = machine.empty({tokens, a.top_k}, d),
               ids = machine.empty({tokens, a.top_k}, DType::i32),
               counts = machine.empty({experts + 1}, DType::i64);
  machine.launch(router_select(machine.put({tokens, experts}, d, logits),
                               bias.empty() ? Tensor{} : machine.put({experts}, d, bias), probs,
                               weights, ids, counts, a));
  return {machine.get(probs), machine.get(weights), machine.get(ids), machine.get(counts)};
}
SelectAttr top(int64_t k) {
  SelectAttr a;
  a.top_k = k;
  return a;
}

/// A full sort: descending biased score, ties to the lower id, experts of dropped groups last.
Selected plain(int64_t tokens, int64_t experts, const Values& logits, const SelectAttr& a,
               const Values& bias) {
  Selected r;
  r.counts.assign(static_cast<size_t>(experts + 1), 0);
  for (int64_t t = 0; t < tokens; ++t) {
    Values p(logits.begin() + t * experts, logits.begin() + (t + 1) * experts);
    if (a.score == Score::softmax) {
      const double largest = *std::max_element(p.begin(), p.end());
      double sum = 0;
      for (double& v : p) v = std::exp(v - largest), sum += v;
      for (double& v : p) v /= sum;
    } else {
      for (double& v : p) v = 1 / (1 + std::exp(-v));
    }
    Values biased = p;
    for (size_t e = 0; e < bias.size(); ++e) biased[e] += bias[e];
    if (a.kept_groups < a.groups) {
      const int64_t size = experts / a.groups;
      std::vector<std::pair<double, int64_t>> order;
      for (int64_t g = 0; g < a.groups; ++g) {
        Values members(biased.begin() + g * size, biased.begin() + (g + 1) * size);
        std::sort(members.rbegin(), members.rend());
        order.push_back({-(members[0] + (size > 1 ? members[1] : 0)), g});
      }
      std::sort(order.begin(), order.end());
      for (size_t i = static_cast<size_t>(a.kept_groups); i < order.size(); ++i)
        std::fill(biased.begin() + order[i].second * size,
                  biased.begin() + (order[i].second + 1) * size, -HUGE_VAL);
    }
    std::vector<size_t> ids(static_cast<size_t>(experts));
    std::iota(ids.begin(), ids.end(), size_t{0});
    std::stable_sort(ids.begin(), ids.end(),
                     [&](size_t x, size_t y) { return biased[x] > biased[y]; });
    double norm = a.p_norm > 0 ? 0 : 1;
    for (size_t j = 0; a.p_norm > 0 && j < static_cast<size_t>(a.top_k); ++j)
      norm += std::pow(p[ids[j]], a.p_norm);
    if (a.p_norm > 0) norm = std::pow(norm, 1 / a.p_norm);
    for (size_t j = 0; j < static_cast<size_t>(a.top_k); ++j) {
      r.ids.push_back(static_cast<double>(ids[j]));
      r.weights.push_back(a.weight_scale * p[ids[j]] / norm);
      r.counts[ids[j]] += 1;
    }
    r.probs.insert(r.probs.end(), p.begin(), p.end());
  }
  return r;
}

const std::vector<DType>& router_types(const Machine& machine) {
  static const std::vector<DType> both = {DType::f32, DType::f64}, single = {DType::f32};
  const auto& types = machine.real_types();
  return std::find(types.begin(), types.end(), DType::f64) == types.end() ? single : both;
}

}  // namespace

TEST_CASE("selection, weights and counts equal a full sort", "[router][P051]") {
  on_each([](Machine& machine) {
    for (DType d : router_types(machine))
      for (const auto& [experts, k] :
           {std::pair{5, 3}, std::pair{8, 2}, std::pair{4, 4}, std::pair{1, 1}, std::pair{257, 1},
            std::pair{512, 10}, std::pair{64, 8}})
        for (Score score : {Score::softmax, Score::sigmoid})
          for (const double p : {0.0, 1.0, 2.0, 3.0}) {
            SelectAttr a = top(k);
            a.score = score, a.p_norm = p, a.weight_scale = 2.5;
            const int64_t tokens = 13;
            const Values logits = rounded(draw(tokens * experts, 1, 3), d);
            const Values bias = rounded(draw(experts, 2, 0.05), d);
            const Selected got = select(machine, d, tokens, experts, logits, a, bias),
                           want = plain(tokens, experts, logits, a, bias);
            expect_equal(got.ids, want.ids, "ids");
            expect_equal(got.counts, want.counts, "counts");
            expect(got.probs, want.probs, tolerance(d, 4, 0.1), "probs");
            expect(got.weights, want.weights, tolerance(d, 8, 0.5), "weights");
          }
  });
}

TEST_CASE("winners planted above expert 255 are found", "[router][P051]") {
  on_each([](Machine& machine) {
    Values logits(512, 0.0), want;
    for (int j = 0; j < 10; ++j) {
      logits[static_cast<size_t>(256 + 28 * j)] = 10 - j;
      want.push_back(256 + 28 * j);
    }
    expect_equal(select(machine, DType::f32, 1, 512, logits, top(10)).ids, want, "ids");
    Values one(257, 0.0);
    one[256] = 1;
    expect_equal(select(machine, DType::f32, 1, 257, one, top(1)).ids, {256}, "ids");
  });
}

TEST_CASE("equal scores go to the lower ids, every time", "[router][P050]") {
  on_each([](Machine& machine) {
    SelectAttr a = top(2);
    a.p_norm = 1;
    for (int run = 0; run < 20; ++run) {
      const Selected s = select(machine, DType::f32, 1, 4, {1, 1, 1, 1}, a);
      expect_equal(s.ids, {0, 1}, "ids");
      expect_equal(s.weights, {0.5, 0.5}, "weights");
      expect_equal(s.probs, {0.25, 0.25, 0.25, 0.25}, "probs");
    }
  });
}

TEST_CASE("a non-finite logit is marked with its token; ids stay distinct", "[router][P048]") {
  on_each([](Machine& machine) {
    const double nan = std::nan(""), inf = HUGE_VAL;
    const std::vector<Values> rows = {
        Values(8, nan), {0, 1, nan, 3, 4, 5, 6, 7}, {0, 1, inf, 3, 4, 5, 6, 7}, Values(8, -inf)};
    for (const Values& bad : rows)
      for (Score score : {Score::softmax, Score::sigmoid}) {
        Values logits = {7, 6, 5, 4, 3, 2, 1, 0};
        logits.insert(logits.end(), bad.begin(), bad.end());
        SelectAttr a = top(4);
        a.score = score;
        const Selected s = select(machine, DType::f32, 2, 8, logits, a);
        expect_equal(s.ids, {0, 1, 2, 3, 0, 1, 2, 3}, "ids");
        expect_equal(s.counts, {2, 2, 2, 2, 0, 0, 0, 0, 2}, "counts");
        expect_equal(Values(s.weights.begin() + 4, s.weights.end()), Values(4, 0.0), "weights");
      }
    CHECK(select(machine, DType::f32, 1, 4, {1, 2, 3, 4}, top(1)).counts[4] == 0);
  });
}

TEST_CASE("k = 1 has the bits of the first choice of k = 2", "[router][P056]") {
  on_each([](Machine& machine) {
    for (Score score : {Score::softmax, Score::sigmoid}) {
      const int64_t tokens = 61, experts = 20;
      const Values logits = draw(tokens * experts, 3, 4);
      SelectAttr one = top(1), two = top(2);
      one.score = two.score = score;
      const Selected a = select(machine, DType::f32, tokens, experts, logits, one),
                     b = select(machine, DType::f32, tokens, experts, logits, two);
      expect_equal(a.probs, b.probs, "probs");
      for (size_t t = 0; t < 61; ++t) {
        if (a.ids[t] != b.ids[2 * t]) FAIL_CHECK("id of token " << t);
        if (a.weights[t] != b.weights[2 * t]) FAIL_CHECK("weight of token " << t);
      }
    }
  });
}

TEST_CASE("k = 1: normalised weights are exactly 1 per token, else the scores", "[router][P056]") {
  on_each([](Machine& machine) {
    Values logits;
    for (double p : {.7, .1, .1, .1, .4, .3, .2, .1, .25, .25, .25, .25})
      logits.push_back(std::log(p));
    SelectAttr a = top(1);
    expect(select(machine, DType::f32, 3, 4, logits, a).weights, {.7, .4, .25},
           tolerance(DType::f32), "raw");
    for (const double p : {1.0, 2.0, 3.0}) {
      a.p_norm = p;
      expect_equal(select(machine, DType::f32, 3, 4, logits, a).weights, {1, 1, 1}, "normalised");
    }
  });
}

TEST_CASE("softmax comes before top-k; renormalising equals the other order", "[router][P057]") {
  on_each([](Machine& machine) {
    SelectAttr a = top(2);
    const Selected raw = select(machine, DType::f32, 1, 4, {2, 1, 0, -1}, a);
    expect(raw.weights, {.6439, .2369}, {0, 5e-5}, "raw");
    a.p_norm = 1;
    expect(select(machine, DType::f32, 1, 4, {2, 1, 0, -1}, a).weights, {.7311, .2689}, {0, 5e-5},
           "renormalised");
  });
}

TEST_CASE("group limit keeps groups by their two best biased scores", "[router]") {
  on_each([](Machine& machine) {
    for (const auto& [experts, groups, kept, k] :
         {std::array{16, 4, 2, 3}, std::array{8, 8, 3, 3}, std::array{60, 5, 1, 12},
          std::array{12, 3, 3, 2}}) {
      SelectAttr a = top(k);
      a.score = Score::sigmoid, a.groups = groups, a.kept_groups = kept, a.p_norm = 1;
      const Values logits = rounded(draw(13 * experts, 4, 2), DType::f32),
                   bias = rounded(draw(experts, 5, 0.5), DType::f32);
      const Selected got = select(machine, DType::f32, 13, experts, logits, a, bias),
                     want = plain(13, experts, logits, a, bias);
      expect_equal(got.ids, want.ids, "ids");
      expect(got.weights, want.weights, tolerance(DType::f32, 4), "weights");
    }
    // A group with one high score loses against one with two good ones: .9 + .1 < .6 + .6.
    const auto logit = [](double p) { return std::log(p / (1 - p)); };
    SelectAttr a = top(1);
    a.score = Score::sigmoid, a.groups = 2, a.kept_groups = 1;
    expect_equal(
        select(machine, DType::f32, 1, 4, {logit(.9), logit(.1), logit(.6), logit(.6)}, a).ids, {2},
        "ids");
  });
}

TEST_CASE("tiny sigmoid scores keep their proportions", "[router][P079]") {
  on_each([](Machine& machine) {
    SelectAttr a = top(2);
    a.score = Score::sigmoid, a.p_norm = 1;
    const double x = std::log(1e-25);
    const Selected s = select(machine, DType::f32, 1, 4, {x, x + std::log(3.0), x, x}, a);
    expect(s.weights, {.75, .25}, {1e-5, 0}, "weights");
    expect_equal(s.ids, {1, 0}, "ids");
  });
}

TEST_CASE("noise follows the global token and moves scores, not the logits", "[router][P105]") {
  on_each([](Machine& machine) {
    const int64_t tokens = 12, experts = 7;
    const Values logits = rounded(draw(tokens * experts, 6), DType::f32);
    for (Noise noise : {Noise::gaussian, Noise::gumbel}) {
      SelectAttr a = top(2);
      a.noise = noise, a.noise_scale = 0.7;
      a.noise_key = philox_key(5, Purpose::logit_noise, 1, 9);
      Values noisy = logits;
      for (size_t i = 0; i < noisy.size(); ++i)
        noisy[i] += 0.7 * (noise == Noise::gaussian ? philox_normal(a.noise_key, i)
                                                    : philox_gumbel(a.noise_key, i));
      const Selected whole = select(machine, DType::f32, tokens, experts, logits, a),
                     want = plain(tokens, experts, noisy, top(2), {});
      expect(whole.probs, want.probs, tolerance(DType::f32, 8, 1), "probs");
      expect_equal(whole.ids, want.ids, "ids");
      // The second half, as another rank would see it.
      a.first_token = 6;
      const Selected half =
          select(machine, DType::f32, 6, experts, Values(logits.begin() + 42, logits.end()), a);
      expect_equal(half.probs, Values(whole.probs.begin() + 42, whole.probs.end()), "half");
    }
  });
}

TEST_CASE("jitter touches the router's own copy and follows the element", "[router][P104]") {
  on_each_type([](Machine& machine, DType d) {
    const int64_t tokens = 6, h = 341;
    const Values x = rounded(draw(tokens * h, 7), d);
    const Tensor tx = machine.put({tokens, h}, d, x), y = machine.empty({tokens, h}, real_dtype(d));
    RouterInputAttr a;
    a.key = philox_key(3, Purpose::jitter, 2, 1);
    machine.launch(router_input(tx, y, a));
    expect_equal(machine.get(y), x, "without jitter a cast");
    a.jitter = 0.1;
    a.first_token = 4;
    machine.launch(router_input(tx, y, a));
    Values want = x;
    for (size_t i = 0; i < x.size(); ++i)
      want[i] *= 0.9 + 0.2 * static_cast<double>(philox_uniform(a.key, 4 * 341 + i));
    expect(machine.get(y), want, tolerance(real_dtype(d)), "jittered");
    expect_equal(machine.get(tx), x, "input is left alone");
    const Values before = rounded(draw(tokens * h, 8), d);
    const Tensor dx = machine.put({tokens, h}, d, before);
    machine.launch(router_input_backward(y, dx, a));
    for (size_t i = 0; i < x.size(); ++i)
      want[i] = before[i] +
                want[i] * (0.9 + 0.2 * static_cast<double>(philox_uniform(a.key, 4 * 341 + i)));
    expect(machine.get(dx), want, tolerance(d), "dx");
  });
}

}  // namespace moetwin::conformance
