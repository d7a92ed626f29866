// With numerics off the plan has counts alone: it must keep what it would keep with tokens.

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "core/ops/dealt_order.h"
#include "core/ops/dispatch.h"
#include "core/ops/isa.h"
#include "core/ops/router.h"
#include "core/ops/table.h"
#include "tests/core/ops/phantom.h"

namespace moetwin {
namespace {

using test::phantom;

void run(const OpCall& call, std::initializer_list<void*> data) {
  ReferenceCall r;
  r.op = call.op;
  size_t i = 0;
  for (void* p : data) {
    r.tensors[i] = {p, call.tensors[i].shape, call.tensors[i].dtype};
    ++i;
  }
  r.attributes = call.attributes;
  reference_of(*call.op, best_isa())(r);
}

}  // namespace

TEST_CASE("counts alone keep what scripted tokens would keep, in every chunk") {
  const int64_t tokens = 11, experts = 5, k = 3;
  for (const std::vector<int64_t>& wanted :
       {std::vector<int64_t>{6, 7, 7, 7, 6}, {11, 11, 11, 0, 0}, {1, 0, 2, 0, 11}, {0, 0, 0, 0, 0}})
    for (const int64_t chunks : {1, 2, 3, 11, 20})
      for (const int64_t capacity : {-1, 0, 2, 5}) {
        INFO(chunks << " chunks, capacity " << capacity);
        std::vector<int64_t> want = wanted, counts(6),
                             kept(static_cast<size_t>(experts * chunks + 1));
        std::vector<int64_t> alone(kept.size());
        std::vector<float> probs(55), weights(33);
        std::vector<int32_t> ids(33), position(33), source(33);
        const Tensor tw = phantom({tokens, k}, DType::f32), ti = phantom({tokens, k}, DType::i32),
                     tc = phantom({experts + 1}, DType::i64),
                     tp = phantom({tokens * k}, DType::i32);
        const OpCall script =
            router_scripted(phantom({experts}, DType::i64), phantom({tokens, experts}, DType::f32),
                            tw, ti, tc, {k});
        run(script, {want.data(), probs.data(), weights.data(), ids.data(), counts.data()});
        PlanAttr a;
        a.experts = experts, a.top_k = k, a.capacity = capacity, a.chunks = chunks;
        const OpCall plan =
            dispatch_plan(ti, tw, tc, tp, tp, phantom({experts * chunks + 1}, DType::i64), a);
        run(plan, {ids.data(), weights.data(), counts.data(), position.data(), source.data(),
                   kept.data()});
        // The same without storage for bulk operands: the script writes counts only.
        std::fill(counts.begin(), counts.end(), -1);
        run(script, {want.data(), nullptr, nullptr, nullptr, counts.data()});
        run(plan, {nullptr, nullptr, counts.data(), nullptr, nullptr, alone.data()});
        CHECK(alone == kept);
      }
}

TEST_CASE("every stretch of scripted tokens gets its share of every expert") {
  for (const int64_t tokens : {1, 2, 3, 12, 64, 100, 4096}) {
    const DealtOrder order = DealtOrder::of(tokens);
    std::vector<int64_t> met(static_cast<size_t>(tokens), 0), numbers;
    for (int64_t i = 0; i < tokens; ++i) {
      ++met.at(static_cast<size_t>(order.token(i)));
      if (order.number(order.token(i)) != i) FAIL_CHECK(i << " of " << tokens);
    }
    CHECK(std::count(met.begin(), met.end(), 1) == tokens);  // each token once
    for (int64_t n = 0; n <= tokens; n += std::max<int64_t>(1, tokens / 23)) {
      int64_t below = 0;
      std::vector<int64_t> counted(static_cast<size_t>(tokens), 0);
      for (int64_t i = 0; i < n; ++i) ++counted[static_cast<size_t>(order.token(i))];
      for (int64_t end = 0; end <= tokens; ++end) {
        if (order.below(n, end) != below) FAIL_CHECK(n << ", " << end << " of " << tokens);
        if (end < tokens) below += counted[static_cast<size_t>(end)];
      }
    }
  }
  // 4,096 tokens of 8 experts, 512 each: 64 of each to each eighth of the tokens.
  const int64_t tokens = 4096, experts = 8, chunks = 8;
  std::vector<int64_t> counts(9, 512), kept(static_cast<size_t>(experts * chunks + 1));
  counts[8] = 0;
  PlanAttr a;
  a.experts = experts, a.top_k = 1, a.capacity = -1, a.chunks = chunks;
  const Tensor t = phantom({tokens, 1}, DType::f32), i = phantom({tokens, 1}, DType::i32),
               p = phantom({tokens}, DType::i32);
  run(dispatch_plan(i, t, phantom({experts + 1}, DType::i64), p, p,
                    phantom({experts * chunks + 1}, DType::i64), a),
      {nullptr, nullptr, counts.data(), nullptr, nullptr, kept.data()});
  CHECK(std::count(kept.begin(), kept.end() - 1, 64) == experts * chunks);
}

}  // namespace moetwin
