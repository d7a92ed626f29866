// cross_entropy: a block per token; probabilities are never stored.

#include "backends/cuda/ops/host.h"
#include "backends/cuda/ops/loss_sums.cuh"
#include "core/ops/loss.h"

namespace moetwin::cuda_ops {
namespace {

/// losses[t]: nats of token t; -1 where it is not counted (a loss is never negative).
template <class T, int step>
__global__ void token_losses(T* logits, const int32_t* targets, float* losses, int64_t tokens,
                             int64_t v, float gradient) {
  for (int64_t t = block_id(); t < tokens; t += block_count()) {
    T* x = logits + t * v;
    const int64_t target = targets[t];
    if (target < 0) {
      if (gradient != 0)
        for (int64_t i = thread_id(); i < v; i += thread_count()) x[i] = from_float<T>(0.0f);
      if (thread_id() == 0) losses[t] = -1;
      continue;
    }
    // A target outside the vocabulary makes loss and gradient NaN: a kernel cannot refuse.
    const float label = target < v ? to_float(x[target]) : NAN;
    // Each thread keeps the largest logit so far and the sum relative to it.
    float top = -INFINITY, sum = 0;
    for (int64_t i = thread_id() * step; i < v; i += thread_count() * step) {
      float a[step];
      load(x + i, a);
      float best = a[0];
#pragma unroll
      for (int j = 1; j < step; ++j) best = a[j] > best ? a[j] : best;
      if (best > top) {
        sum *= expf(top - best);
        top = best;
      }
#pragma unroll
      for (int j = 0; j < step; ++j) sum += expf(a[j] - top);
    }
    const float all = block_max(top);
    sum = block_sum(top > -INFINITY ? sum * expf(top - all) : 0.0f);
    if (thread_id() == 0) losses[t] = all - label + logf(sum);
    if (gradient == 0) continue;
    const float factor = target < v ? gradient / sum : NAN;
    for (int64_t i = thread_id() * step; i < v; i += thread_count() * step) {
      float a[step];
      load(x + i, a);
#pragma unroll
      for (int j = 0; j < step; ++j)
        a[j] = expf(a[j] - all) * factor - (i + j == target ? gradient : 0.0f);
      store(x + i, a);
    }
  }
}

}  // namespace

void cross_entropy(const OpCall& call, CudaLaunchContext& context) {
  const int64_t tokens = call[0].shape[0], v = call[0].shape[1];
  if (tokens == 0) return;
  const float gradient = static_cast<float>(call.get<CrossEntropyAttr>().gradient_scale);
  const bool packed = v % kPacked == 0 && aligned(call[0].data(), 16);
  const int threads = v <= 4096 ? row_threads(v, packed ? kPacked : 1) : 512;
  float* losses = take<float>(context, tokens);
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(packed ? token_losses<T, kPacked> : token_losses<T, 1>,
           blocks_for(tokens, 1, most_blocks(context)), threads, 0, context.stream,
           data<T>(call[0]), data<const int32_t>(call[1]), losses, tokens, v, gradient);
  });
  launch(add_losses, 1, tokens < 1024 ? kThreads : 1024, 0, context.stream, losses, tokens,
         data<float>(call[2]));
}

}  // namespace moetwin::cuda_ops
