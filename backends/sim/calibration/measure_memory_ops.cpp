// What streams through memory, and kernels so small that only their fixed time is left.
#include <fmt/format.h>

#include "backends/sim/calibration/bench.h"
#include "core/ops/activation.h"
#include "core/ops/elementwise.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"

namespace moetwin {
namespace {

void time_norm(Bench& bench, int64_t rows, int64_t width) {
  const DType d = bench.sizes().dtype, real = real_dtype(d);
  const Tensor x = bench.drawn({rows, width}, d), y = bench.empty({rows, width}, d);
  const Tensor gamma = bench.drawn({width}, d), rstd = bench.empty({rows}, real);
  NormAttr attr;
  attr.kind = NormKind::rms;
  bench.time(fmt::format("norm {} {}x{}", dtype_name(d), rows, width),
             norm(x, gamma, {}, y, {}, rstd, attr));
}

void time_streams(Bench& bench, int64_t n) {
  const DType d = bench.sizes().dtype;
  const Tensor x = bench.drawn({n}, d), y = bench.empty({n}, d), z = bench.drawn({n}, d);
  const std::string shape = fmt::format(" {} {} elements", dtype_name(d), n);
  bench.time("copy" + shape, copy(x, y));
  bench.time("add" + shape, add(x, z, y));
  bench.time("gelu" + shape, gelu(x, y, {}));
}

void time_adamw(Bench& bench, int64_t n) {
  const Tensor p = bench.drawn({n}, DType::f32), g = bench.drawn({n}, DType::f32);
  const Tensor m = bench.empty({n}, DType::f32), v = bench.empty({n}, DType::f32);
  const Tensor scale = bench.empty({1}, DType::f32), sum = bench.empty({1}, DType::f32);
  for (const Tensor& zeros : {m, v}) bench.device().launch(fill(zeros, {0}), bench.stream());
  bench.device().launch(fill(scale, {1}), bench.stream());
  AdamWAttr attr;
  attr.learning_rate = 1e-6;
  bench.time(fmt::format("adamw fp32 {} parameters", n), adamw(p, g, m, v, scale, attr));
  bench.device().launch(fill(sum, {0}), bench.stream());
  bench.time(fmt::format("sum_squares fp32 {} elements", n), sum_squares(g, sum));
}

}  // namespace

void measure_memory_ops(Bench& bench) {
  const MeasureSizes& s = bench.sizes();
  time_streams(bench, s.elements);
  time_streams(bench, s.elements / 16);
  time_streams(bench, 1024);
  time_adamw(bench, s.elements);
  time_adamw(bench, s.elements / 16);
  time_norm(bench, s.elements / s.hidden, s.hidden);
  time_norm(bench, 4, s.hidden);
}

}  // namespace moetwin
