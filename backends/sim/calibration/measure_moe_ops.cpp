// The ops around the experts: selection, sorting, moving tokens to their experts and back.
#include <fmt/format.h>

#include "backends/sim/calibration/bench.h"
#include "core/ops/dispatch.h"
#include "core/ops/router.h"

namespace moetwin {
namespace {

constexpr int64_t kTopK = 2;

struct Routed {
  Tensor ids, weights, counts;
};

/// By a router's selection from drawn logits where there are numbers, else by equal counts.
Routed route(Bench& bench, int64_t tokens, int64_t experts) {
  const DType real = real_dtype(bench.sizes().dtype);
  Routed r;
  r.ids = bench.empty({tokens, kTopK}, DType::i32);
  r.weights = bench.empty({tokens, kTopK}, real);
  r.counts = bench.empty({experts + 1}, DType::i64, MemoryClass::control);
  const Tensor probs = bench.empty({tokens, experts}, real);
  if (bench.numerics()) {
    SelectAttr attr;
    attr.top_k = kTopK;
    const Tensor logits = bench.drawn({tokens, experts}, real);
    bench.time(fmt::format("router_select {} tokens, {} experts, top {}", tokens, experts, kTopK),
               router_select(logits, {}, probs, r.weights, r.ids, r.counts, attr));
    return r;
  }
  const Tensor wanted = bench.empty({experts}, DType::i64, MemoryClass::control);
  const std::vector<int64_t> equal(static_cast<size_t>(experts), tokens * kTopK / experts);
  bench.device().write(wanted, equal.data(), bench.stream());
  bench.device().launch(router_scripted(wanted, probs, r.weights, r.ids, r.counts, {kTopK}),
                        bench.stream());
  return r;
}

}  // namespace

void measure_moe_ops(Bench& bench) {
  const MeasureSizes& s = bench.sizes();
  const int64_t tokens = 4 * s.tokens, rows = tokens * kTopK, h = s.hidden;
  const Routed r = route(bench, tokens, s.many_experts);
  const Tensor position = bench.empty({rows}, DType::i32), source = bench.empty({rows}, DType::i32);
  const Tensor kept = bench.empty({s.many_experts + 1}, DType::i64, MemoryClass::control);
  PlanAttr plan;
  plan.experts = s.many_experts, plan.top_k = kTopK;
  bench.time(fmt::format("dispatch_plan {} assignments, {} experts", rows, s.many_experts),
             dispatch_plan(r.ids, r.weights, r.counts, position, source, kept, plan));
  const Tensor x = bench.drawn({tokens, h}, s.dtype), y = bench.empty({rows, h}, s.dtype);
  const std::string shape = fmt::format("{} {} rows of {}", dtype_name(s.dtype), rows, h);
  const RangeAttr all_rows = {kTopK, 0, rows}, all_tokens = {kTopK, 0, tokens};
  bench.time("permute " + shape, permute(x, source, y, all_rows));
  bench.time("permute_backward " + shape, permute_backward(y, position, x, all_tokens));
  bench.time("combine " + shape, combine(y, r.weights, position, x, all_tokens));
}

}  // namespace moetwin
