// Dispatch plan, permutations, combine.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "core/ops/dispatch.h"
#include "tests/conformance/gradient.h"

namespace moetwin::conformance {
namespace {

struct Plan {
  Values position, source, kept;
};
struct PlanTensors {
  Tensor ids, weights, position, source, kept;
};
PlanTensors plan_tensors(Machine& machine, const PlanAttr& a, const Values& ids,
                         const Values& weights) {
  const int64_t tokens = static_cast<int64_t>(ids.size()) / a.top_k;
  Values counts(static_cast<size_t>(a.experts + 1), 0.0);
  for (double e : ids)
    if (e >= 0) counts[static_cast<size_t>(e)] += 1;
  counts.back() = 77;  // the router's mark, passed on
  PlanTensors p{machine.put({tokens, a.top_k}, DType::i32, ids),
                machine.put({tokens, a.top_k}, DType::f32, weights),
                machine.empty({tokens * a.top_k}, DType::i32),
                machine.empty({tokens * a.top_k}, DType::i32),
                machine.empty({a.chunks * a.experts + 1}, DType::i64)};
  machine.launch(dispatch_plan(p.ids, p.weights, machine.put({a.experts + 1}, DType::i64, counts),
                               p.position, p.source, p.kept, a));
  return p;
}
Plan read_plan(Machine& machine, const PlanTensors& p) {
  return {machine.get(p.position), machine.get(p.source), machine.get(p.kept)};
}

/// By sorting (expert, assignment) pairs of each chunk.
Plan plain_plan(const PlanAttr& a, const Values& ids, const Values& weights) {
  const int64_t k = a.top_k, n = static_cast<int64_t>(ids.size()), tokens = n / k;
  std::vector<bool> keep(ids.size(), true);
  for (int64_t e = 0; a.capacity >= 0 && e < a.experts; ++e) {
    std::vector<std::pair<double, size_t>> mine;
    for (size_t i = 0; i < ids.size(); ++i)
      if (ids[i] == static_cast<double>(e)) mine.push_back({a.by_probability ? -weights[i] : 0, i});
    std::sort(mine.begin(), mine.end());
    for (size_t i = static_cast<size_t>(a.capacity); i < mine.size(); ++i)
      keep[mine[i].second] = false;
  }
  Plan p{Values(ids.size(), -1.0), Values(ids.size(), -1.0),
         Values(static_cast<size_t>(a.experts * a.chunks), 0.0)};
  for (int64_t c = 0; c < a.chunks; ++c) {
    const int64_t begin = chunk_begin(tokens, a.chunks, c) * k,
                  end = chunk_begin(tokens, a.chunks, c + 1) * k;
    std::vector<std::pair<double, int64_t>> rows;
    for (int64_t i = begin; i < end; ++i)
      if (ids[static_cast<size_t>(i)] >= 0 && keep[static_cast<size_t>(i)])
        rows.push_back({ids[static_cast<size_t>(i)], i});
    std::sort(rows.begin(), rows.end());
    for (size_t r = 0; r < rows.size(); ++r) {
      p.position[static_cast<size_t>(rows[r].second)] =
          static_cast<double>(begin) + static_cast<double>(r);
      p.source[static_cast<size_t>(begin) + r] = static_cast<double>(rows[r].second);
      p.kept[static_cast<size_t>(static_cast<int64_t>(rows[r].first) * a.chunks + c)] += 1;
    }
  }
  p.kept.push_back(77);
  return p;
}

/// Tokens with k different experts each, some slots unrouted.
Values some_ids(int64_t tokens, int64_t experts, int64_t k, uint64_t seed) {
  Values ids;
  const Values u = draw(tokens * k, seed);
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t first = static_cast<int64_t>((u[static_cast<size_t>(t * k)] + 1) / 2 *
                                               static_cast<double>(experts));
    for (int64_t j = 0; j < k; ++j)
      ids.push_back(u[static_cast<size_t>(t * k + j)] > 0.9
                        ? -1.0
                        : static_cast<double>((first + j) % experts));
  }
  return ids;
}

}  // namespace

TEST_CASE("chunks cut tokens into equal ranges, the last ones shorter", "[dispatch]") {
  CHECK(chunk_begin(10, 4, 0) == 0);
  CHECK(chunk_begin(10, 4, 1) == 3);
  CHECK(chunk_begin(10, 4, 3) == 9);
  CHECK(chunk_begin(10, 4, 4) == 10);
  CHECK(chunk_begin(3, 8, 5) == 3);
  CHECK(chunk_begin(0, 2, 1) == 0);
}

TEST_CASE("the plan is a stable sort by expert within each chunk", "[dispatch][P173]") {
  on_each([](Machine& machine) {
    for (const auto& [tokens, experts, k] :
         {std::array{13, 5, 3}, std::array{1, 4, 1}, std::array{64, 8, 2}, std::array{0, 3, 2},
          std::array{9, 300, 2}})
      for (const int64_t chunks : {1, 3, 20})
        for (const int64_t capacity : {-1, 0, 1, 4})
          for (const bool probability : {false, true}) {
            INFO(tokens << " tokens, " << experts << " experts, " << chunks << " chunks, capacity "
                        << capacity);
            PlanAttr a;
            a.experts = experts, a.top_k = k, a.capacity = capacity, a.chunks = chunks;
            a.by_probability = probability;
            const Values ids = some_ids(tokens, experts, k, 1);
            Values weights = rounded(draw(tokens * k, 2), DType::f32);
            for (double& w : weights) w = std::round(w * 4) / 4;  // with ties
            const Plan got = read_plan(machine, plan_tensors(machine, a, ids, weights)),
                       want = plain_plan(a, ids, weights);
            expect_equal(got.position, want.position, "position");
            expect_equal(got.source, want.source, "source");
            expect_equal(got.kept, want.kept, "kept");
          }
  });
}

TEST_CASE("capacity: position keeps the first, probability the highest", "[dispatch][P064]") {
  on_each([](Machine& machine) {
    PlanAttr a;
    a.experts = 2, a.capacity = 2;
    const Values ids(4, 0.0), weights = {.4, .9, .6, .8};
    expect_equal(read_plan(machine, plan_tensors(machine, a, ids, weights)).position,
                 {0, 1, -1, -1}, "position");
    a.by_probability = true;
    expect_equal(read_plan(machine, plan_tensors(machine, a, ids, weights)).position,
                 {-1, 0, -1, 1}, "probability");
  });
}

TEST_CASE("capacity 4 and 2 of five tokens on one expert", "[dispatch][P058]") {
  on_each([](Machine& machine) {
    for (const auto& [capacity, dropped] : {std::pair{4, 1}, std::pair{2, 3}}) {
      PlanAttr a;
      a.experts = 4, a.capacity = capacity;
      const Plan p = read_plan(machine, plan_tensors(machine, a, Values(5, 0.0), Values(5, 1.0)));
      CHECK(p.kept[0] == capacity);
      CHECK(std::count(p.position.begin(), p.position.end(), -1.0) == dropped);
    }
  });
}

TEST_CASE("the same assignments give the same permutation in a hundred runs", "[dispatch][P173]") {
  on_each([](Machine& machine) {
    PlanAttr a;
    a.experts = 8, a.top_k = 2, a.chunks = 2;
    const Values ids = some_ids(50, 8, 2, 3), weights = draw(100, 4);
    const Plan first = read_plan(machine, plan_tensors(machine, a, ids, weights));
    for (int run = 0; run < 100; ++run) {
      const Plan p = read_plan(machine, plan_tensors(machine, a, ids, weights));
      if (p.position != first.position || p.source != first.source) FAIL_CHECK("run " << run);
    }
  });
}

TEST_CASE("a slice of the planned tokens moves as it does among all of them", "[dispatch][P061]") {
  on_each_type([](Machine& machine, DType d) {
    PlanAttr a;
    a.experts = 4, a.top_k = 2, a.capacity = 3, a.chunks = 2;
    const int64_t tokens = 8, h = 24, k = 2, mine = 4;
    const Values ids = {0, 1, 0, 2, 1, 0, 3, 0, 2, 1, 0, 1, 1, 2, 3, 2};
    const Values weights = rounded(draw(16, 5), real_dtype(d));
    const Values x = rounded(draw(tokens * h, 6), d), d_out = rounded(draw(tokens * h, 7), d);
    const PlanTensors p = plan_tensors(machine, a, ids, rounded(weights, DType::f32));
    const Tensor tw = machine.put({tokens, k}, real_dtype(d), weights);
    const Tensor tx = machine.put({tokens, h}, d, x), td = machine.put({tokens, h}, d, d_out);
    // y, out, dy, dx, dw of tokens [first, first + mine), in tensors that hold them alone or all.
    const auto moved = [&](int64_t first, bool alone) {
      const int64_t held = alone ? mine : tokens, from = alone ? first : 0;
      RangeAttr rows{k, (first - from) * k, mine * k}, range{k, first - from, mine};
      rows.slice = range.slice = from;
      const Tensor source = p.source.slice(from * k, {held * k}),
                   position = p.position.slice(from * k, {held * k});
      const Tensor y = machine.empty({mine * k, h}, d), out = machine.empty({held, h}, d),
                   dy = machine.empty({mine * k, h}, d), dx = machine.empty({held, h}, d),
                   dw = machine.empty({held, k}, real_dtype(d));
      const Tensor w = tw.rows(from, held);
      machine.launch(permute(tx.rows(from, held), source, y, rows));
      machine.launch(combine(y, w, position, out, range));
      machine.launch(combine_backward(td.rows(from, held), y, w, position, dy, dw, range));
      machine.launch(permute_backward(dy, position, dx, range));
      return std::vector<Values>{machine.get(y), machine.get(out.rows(first - from, mine)),
                                 machine.get(dy), machine.get(dx.rows(first - from, mine)),
                                 machine.get(dw.rows(first - from, mine))};
    };
    for (const int64_t first : {0, 4}) {
      const auto whole = moved(first, false), slice = moved(first, true);
      for (size_t i = 0; i < whole.size(); ++i) expect_equal(slice[i], whole[i], "slice");
    }
  });
}

TEST_CASE("permute, combine and their backward through drops and chunks", "[dispatch][P053]") {
  on_each_type([](Machine& machine, DType d) {
    for (const int64_t chunks : {1, 3}) {
      PlanAttr a;
      a.experts = 4, a.top_k = 2, a.capacity = 1, a.chunks = chunks;
      const int64_t tokens = 8, h = 37, k = 2;
      const Values ids = {0, 1, 0, 2, 1, 0, 3, 0, 2, 1, 0, 1, 1, 2, 3, 2};  // many drops
      const Values weights = rounded(draw(16, 5), real_dtype(d));
      const Values x = rounded(draw(tokens * h, 6), d), d_out = rounded(draw(tokens * h, 7), d);
      const PlanTensors p = plan_tensors(machine, a, ids, rounded(weights, DType::f32));
      const Plan plan = read_plan(machine, p);
      const Tensor tw = machine.put({tokens, k}, real_dtype(d), weights);
      const Tensor tx = machine.put({tokens, h}, d, x), td = machine.put({tokens, h}, d, d_out);
      const Tensor y = machine.empty({tokens * k, h}, d), out = machine.empty({tokens, h}, d),
                   dy = machine.empty({tokens * k, h}, d), dx = machine.empty({tokens, h}, d),
                   dw = machine.empty({tokens, k}, real_dtype(d));
      for (int64_t c = 0; c < chunks; ++c) {
        const int64_t first = chunk_begin(tokens, chunks, c),
                      count = chunk_begin(tokens, chunks, c + 1) - first;
        const RangeAttr rows{k, first * k, count * k}, range{k, first, count};
        const Tensor part = y.rows(first * k, count * k), d_part = dy.rows(first * k, count * k);
        machine.launch(permute(tx, p.source, part, rows));
        machine.launch(combine(part, tw, p.position, out, range));
        machine.launch(combine_backward(td, part, tw, p.position, d_part, dw, range));
        machine.launch(permute_backward(d_part, p.position, dx, range));
      }
      Values want_y(static_cast<size_t>(tokens * k * h), 0.0), want_out(x.size(), 0.0),
          want_dx(x.size(), 0.0), want_dw(16, 0.0), want_dy = want_y;
      for (size_t i = 0; i < 16; ++i) {
        if (plan.position[i] < 0) continue;
        const size_t row = static_cast<size_t>(plan.position[i]) * 37, token = i / 2 * 37;
        for (size_t j = 0; j < 37; ++j) {
          want_y[row + j] = x[token + j];
          want_out[token + j] += weights[i] * x[token + j];
          want_dy[row + j] = weights[i] * d_out[token + j];
          want_dx[token + j] += rounded(want_dy[row + j], d);
          want_dw[i] += d_out[token + j] * x[token + j];
        }
      }
      expect_equal(machine.get(y), want_y, "permuted");
      expect(machine.get(out), want_out, tolerance(d, 2), "combined");
      expect(machine.get(dy), want_dy, tolerance(d), "d_y");
      expect(machine.get(dx), want_dx, tolerance(d, 2), "dx");
      expect(machine.get(dw), want_dw, tolerance(real_dtype(d), 40), "d_weights");
    }
  });
}

TEST_CASE("combine sums a token's slots in slot order, bit for bit", "[dispatch][P053][P171]") {
  on_each([](Machine& machine) {
    PlanAttr a;
    a.experts = 4, a.top_k = 3;
    const int64_t tokens = 5, h = 19;
    Values ids;
    for (int t = 0; t < 5; ++t)
      for (int j = 0; j < 3; ++j) ids.push_back((t + 3 - j) % 4);
    const Values weights = rounded(draw(15, 8), DType::f32),
                 rows = rounded(draw(15 * h, 9), DType::f32);
    const PlanTensors p = plan_tensors(machine, a, ids, weights);
    const Plan plan = read_plan(machine, p);
    const Tensor out = machine.empty({tokens, h}, DType::f32);
    machine.launch(combine(machine.put({15, h}, DType::f32, rows), p.weights, p.position, out,
                           {3, 0, tokens}));
    Values want;
    for (size_t t = 0; t < 5; ++t)
      for (size_t i = 0; i < 19; ++i) {
        float sum = 0;
        for (size_t j = 0; j < 3; ++j) {
          const size_t row = static_cast<size_t>(plan.position[t * 3 + j]);
          sum =
              sum + static_cast<float>(weights[t * 3 + j]) * static_cast<float>(rows[row * 19 + i]);
        }
        want.push_back(static_cast<double>(sum));
      }
    expect_equal(machine.get(out), want, "out");
  });
}

TEST_CASE("regroup copies row ranges and nothing else", "[dispatch]") {
  on_each_type([](Machine& machine, DType d) {
    const Values x = rounded(draw(6 * 5, 10), d);
    const Tensor y = machine.put({7, 5}, d, Values(35, 3.0));
    machine.launch(regroup(machine.put({6, 5}, d, x), y, sizes({4, 0, 2, 0, 3, 0, 1, 5, 1})));
    Values want(35, 3.0);
    std::copy(x.begin() + 20, x.begin() + 30, want.begin());
    std::copy(x.begin() + 5, x.begin() + 10, want.begin() + 25);
    expect_equal(machine.get(y), want, "y");
  });
}

}  // namespace moetwin::conformance
