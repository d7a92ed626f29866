// adamw, sgd, sum_squares, clip_factor over flat ranges.

#include <cmath>

#include "backends/cuda/ops/host.h"
#include "core/ops/optimizer.h"

namespace moetwin::cuda_ops {
namespace {

struct AdamStep {
  float beta1, beta2, rest1, rest2, rate, correction, decay, epsilon;
  __device__ __forceinline__ void operator()(float& p, float gradient, float& m, float& v) const {
    m = beta1 * m + rest1 * gradient;
    v = beta2 * v + rest2 * (gradient * gradient);
    p = p * decay - rate * m / (sqrtf(v) * correction + epsilon);
  }
};

/// n: of the last elements, one at a time; `packed`: of the first, kPacked at a time.
__global__ void adam(AnyReal p, AnyReal g, AnyReal m, AnyReal v, const float* scale, AdamStep step,
                     int64_t n, int64_t packed) {
  const float factor = *scale;
  for (int64_t i = grid_thread() * kPacked; i < packed; i += grid_threads() * kPacked) {
    float pi[kPacked], gi[kPacked], mi[kPacked], vi[kPacked];
    p.load_to(i, pi);
    g.load_to(i, gi);
    m.load_to(i, mi);
    v.load_to(i, vi);
#pragma unroll
    for (int j = 0; j < kPacked; ++j) step(pi[j], gi[j] * factor, mi[j], vi[j]);
    p.store_from(i, pi);
    m.store_from(i, mi);
    v.store_from(i, vi);
  }
  for (int64_t i = packed + grid_thread(); i < n; i += grid_threads()) {
    float pi = p.get(i), mi = m.get(i), vi = v.get(i);
    step(pi, g.get(i) * factor, mi, vi);
    p.set(i, pi);
    m.set(i, mi);
    v.set(i, vi);
  }
}

__global__ void descend(AnyReal p, AnyReal g, const float* scale, float rate, float decay,
                        int64_t n, int64_t packed) {
  const float factor = *scale;
  for (int64_t i = grid_thread() * kPacked; i < packed; i += grid_threads() * kPacked) {
    float pi[kPacked], gi[kPacked];
    p.load_to(i, pi);
    g.load_to(i, gi);
#pragma unroll
    for (int j = 0; j < kPacked; ++j) pi[j] = pi[j] * decay - rate * (gi[j] * factor);
    p.store_from(i, pi);
  }
  for (int64_t i = packed + grid_thread(); i < n; i += grid_threads())
    p.set(i, p.get(i) * decay - rate * (g.get(i) * factor));
}

/// Squares of runs of `per_block` elements: fp32 within a pack, double beyond it.
__global__ void part_squares(AnyReal x, int64_t n, int64_t per_block, bool packed, double* sums) {
  const int64_t first = block_id() * per_block;
  const int64_t end = first + per_block < n ? first + per_block : n;
  const int64_t whole = packed ? first + (end - first) / kPacked * kPacked : first;
  double sum = 0;
  for (int64_t i = first + thread_id() * kPacked; i < whole; i += thread_count() * kPacked) {
    float v[kPacked], squares = 0;
    x.load_to(i, v);
#pragma unroll
    for (int j = 0; j < kPacked; ++j) squares += v[j] * v[j];
    sum += static_cast<double>(squares);
  }
  for (int64_t i = whole + thread_id(); i < end; i += thread_count()) {
    const float v = x.get(i);
    sum += static_cast<double>(v * v);
  }
  sum = block_sum(sum);
  if (thread_id() == 0) sums[block_id()] = sum;
}
__global__ void join_squares(const double* sums, int64_t parts, float* out) {
  double sum = 0;
  for (int64_t i = thread_id(); i < parts; i += thread_count()) sum += sums[i];
  sum = block_sum(sum);
  if (thread_id() == 0) *out += static_cast<float>(sum);
}

__global__ void clip(const float* totals, float* out, float max_norm, float nominal) {
  if (thread_id() != 0) return;
  const float unscale = totals[1] > 0 ? nominal / totals[1] : 0.0f;
  const float norm = sqrtf(totals[0]) * unscale, factor = max_norm / (norm + 1e-6f);
  out[0] = max_norm > 0 && factor < 1 ? unscale * factor : unscale;
  out[1] = norm;
}

/// Elements that all of the first `count` operands can move kPacked at a time.
int64_t packed_part(const OpCall& call, int count) {
  for (int i = 0; i < count; ++i)
    if (!aligned(call[i].data(), 16)) return 0;
  return call[0].elements() / kPacked * kPacked;
}

}  // namespace

void adamw(const OpCall& call, CudaLaunchContext& context) {
  const auto a = call.get<AdamWAttr>();
  const double steps = static_cast<double>(a.step);
  AdamStep step;
  step.beta1 = static_cast<float>(a.beta1);
  step.beta2 = static_cast<float>(a.beta2);
  step.rest1 = static_cast<float>(1 - a.beta1);
  step.rest2 = static_cast<float>(1 - a.beta2);
  step.rate = static_cast<float>(a.learning_rate / (1 - std::pow(a.beta1, steps)));
  step.correction = static_cast<float>(1 / std::sqrt(1 - std::pow(a.beta2, steps)));
  step.decay = static_cast<float>(1 - a.learning_rate * a.weight_decay);
  step.epsilon = static_cast<float>(a.epsilon);
  const int64_t n = call[0].elements();
  launch(adam, blocks_for(n, kThreads * kPacked, most_blocks(context)), kThreads, 0, context.stream,
         any_real(call[0]), any_real(call[1]), any_real(call[2]), any_real(call[3]),
         data<const float>(call[4]), step, n, packed_part(call, 4));
}

void sgd(const OpCall& call, CudaLaunchContext& context) {
  const auto a = call.get<SgdAttr>();
  const int64_t n = call[0].elements();
  launch(descend, blocks_for(n, kThreads * kPacked, most_blocks(context)), kThreads, 0,
         context.stream, any_real(call[0]), any_real(call[1]), data<const float>(call[2]),
         static_cast<float>(a.learning_rate),
         static_cast<float>(1 - a.learning_rate * a.weight_decay), n, packed_part(call, 2));
}

void sum_squares(const OpCall& call, CudaLaunchContext& context) {
  const int64_t n = call[0].elements();
  if (n == 0) return;
  // At most 1,024 runs, of whole packs per thread: the order of the sum depends on n alone.
  constexpr int64_t kMost = 1024, kGrain = kThreads * kPacked;
  const int64_t per_block = ((n + kMost - 1) / kMost + kGrain - 1) / kGrain * kGrain;
  const int64_t blocks = (n + per_block - 1) / per_block;
  double* sums = take<double>(context, blocks);
  launch(part_squares, blocks, kThreads, 0, context.stream, any_real(call[0]), n, per_block,
         aligned(call[0].data(), 16), sums);
  launch(join_squares, 1, kThreads, 0, context.stream, sums, blocks, data<float>(call[1]));
}

void clip_factor(const OpCall& call, CudaLaunchContext& context) {
  const auto a = call.get<ClipAttr>();
  launch(clip, 1, 32, 0, context.stream, data<const float>(call[0]), data<float>(call[1]),
         static_cast<float>(a.max_norm), static_cast<float>(a.nominal_tokens));
}

}  // namespace moetwin::cuda_ops
