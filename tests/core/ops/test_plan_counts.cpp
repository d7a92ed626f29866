// With numerics off the plan has counts alone: it must keep what it would keep with tokens.

#include <catch2/catch.hpp>
#include <vector>

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

}  // namespace moetwin
