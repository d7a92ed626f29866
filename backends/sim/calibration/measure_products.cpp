// Matrix products, plain and grouped, and attention.
#include <fmt/format.h>

#include <numeric>

#include "backends/sim/calibration/bench.h"
#include "core/ops/attention.h"
#include "core/ops/gemm.h"

namespace moetwin {
namespace {

void time_gemm(Bench& bench, DType dtype, int64_t m, int64_t n, int64_t k, GemmAttr attr) {
  const Tensor a = bench.drawn(attr.transpose_a ? Shape{k, m} : Shape{m, k}, dtype);
  const Tensor b = bench.drawn(attr.transpose_b ? Shape{n, k} : Shape{k, n}, dtype);
  const Tensor c = bench.empty({m, n}, dtype);
  bench.time(fmt::format("gemm {} {}x{}x{}{}{}", dtype_name(dtype), m, n, k,
                         attr.transpose_a ? ", a transposed" : "",
                         attr.transpose_b ? ", b transposed" : ""),
             gemm(a, b, {}, c, {}, attr));
}

/// Rows in proportion to weights, in whole numbers that sum to `rows`.
HostSizes by_weight(int64_t rows, const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> counts;
  double passed = 0;
  int64_t given = 0;
  for (const double weight : weights) {
    passed += weight;
    const auto until = static_cast<int64_t>(static_cast<double>(rows) * (passed / sum) + 0.5);
    counts.push_back(until - given);
    given = until;
  }
  return shared(std::move(counts));
}

struct Skew {
  const char* name;
  HostSizes rows;
};

std::vector<Skew> skews(int64_t rows, int64_t groups) {
  const auto n = static_cast<size_t>(groups);
  std::vector<double> even(n, 1), ramp, hot(n, 1);
  for (size_t g = 0; g < n; ++g) ramp.push_back(static_cast<double>(2 * g + 1));
  hot[0] = static_cast<double>(n - 1);  // half of all rows
  return {{"even", by_weight(rows, even)},
          {"ramp", by_weight(rows, ramp)},
          {"half on one", by_weight(rows, hot)}};
}

void time_grouped(Bench& bench, int64_t groups, int64_t width) {
  const MeasureSizes& s = bench.sizes();
  const int64_t rows = 2 * s.tokens;  // top-2
  const Tensor a = bench.drawn({rows, s.hidden}, s.dtype);
  const Tensor b = bench.drawn({groups, s.hidden, width}, s.dtype);
  const Tensor c = bench.empty({rows, width}, s.dtype);
  for (const Skew& skew : skews(rows, groups))
    bench.time(fmt::format("grouped gemm {} {} groups of {}x{}x{}, {}", dtype_name(s.dtype), groups,
                           rows / groups, width, s.hidden, skew.name),
               grouped_gemm(a, b, {}, c, {}, {}, skew.rows));
  const Tensor d_b = bench.empty({groups, s.hidden, width}, real_dtype(s.dtype));
  bench.time(fmt::format("grouped weight gradient {} {} groups of {}x{}x{}, even",
                         dtype_name(s.dtype), groups, s.hidden, width, rows / groups),
             grouped_gemm_weight_grad(a, c, d_b, skews(rows, groups)[0].rows));
}

void time_attention(Bench& bench) {
  const MeasureSizes& s = bench.sizes();
  HeadsAttr attr;
  attr.query_heads = attr.kv_heads = s.hidden / s.head_dim;
  attr.head_dim = s.head_dim;
  attr.sequence_length = s.sequence;
  const int64_t t = s.tokens;
  const Tensor qkv = bench.drawn({t, 3 * s.hidden}, s.dtype);
  const Tensor out = bench.empty({t, s.hidden}, s.dtype);
  const Tensor lse = bench.empty({t, attr.query_heads}, real_dtype(s.dtype));
  const std::string shape =
      fmt::format("{} {} tokens, {} heads of {}, sequences of {}", dtype_name(s.dtype), t,
                  attr.query_heads, s.head_dim, s.sequence);
  bench.time("attention " + shape, attention(qkv, out, lse, attr));
  const Tensor d_out = bench.drawn({t, s.hidden}, s.dtype);
  const Tensor d_qkv = bench.empty({t, 3 * s.hidden}, s.dtype);
  bench.time("attention backward " + shape, attention_backward(qkv, out, lse, d_out, d_qkv, attr));
}

}  // namespace

void measure_products(Bench& bench) {
  const MeasureSizes& s = bench.sizes();
  GemmAttr b_transposed, a_transposed;
  b_transposed.transpose_b = true;
  a_transposed.transpose_a = true;
  const int64_t t = s.tokens, h = s.hidden;
  time_gemm(bench, s.dtype, t, 3 * h, h, {});
  time_gemm(bench, s.dtype, t, h, h, {});
  time_gemm(bench, s.dtype, t, s.expert_width, h, {});
  time_gemm(bench, s.dtype, t, h, s.expert_width, {});
  time_gemm(bench, s.dtype, 2 * t, h, h, {});
  time_gemm(bench, s.dtype, t / 4, h, h, {});
  time_gemm(bench, s.dtype, t, h, s.expert_width, b_transposed);
  time_gemm(bench, s.dtype, h, s.expert_width, t, a_transposed);
  if (s.dtype != DType::f32) time_gemm(bench, DType::f32, t / 2, h, h, {});
  time_grouped(bench, s.few_experts, s.expert_width);
  time_grouped(bench, s.many_experts, s.small_expert_width);
  time_attention(bench);
}

}  // namespace moetwin
