// vocab_statistics, vocab_cross_entropy: a block per token and part of the vocabulary.

#include "backends/cuda/ops/host.h"
#include "backends/cuda/ops/loss_sums.cuh"
#include "core/ops/loss.h"

namespace moetwin::cuda_ops {
namespace {

template <class T>
__global__ void part_statistics(const T* logits, const int32_t* targets, float* out, int64_t tokens,
                                int64_t v, VocabPartAttr a) {
  for (int64_t t = block_id(); t < tokens; t += block_count()) {
    const T* x = logits + t * v;
    // Each thread keeps the largest logit so far and the sum relative to it.
    float top = -INFINITY, sum = 0;
    for (int64_t i = thread_id(); i < a.classes; i += thread_count()) {
      const float logit = to_float(x[i]);
      if (logit > top) {
        sum *= expf(top - logit);
        top = logit;
      }
      sum += expf(logit - top);
    }
    const float all = block_max(top);
    sum = block_sum(top > -INFINITY ? sum * expf(top - all) : 0.0f);
    if (thread_id() != 0) continue;
    const int64_t target = targets[t], column = target - a.first;
    out[t] = all;
    out[tokens + t] = sum;
    // A target outside the vocabulary makes the loss NaN: a kernel cannot refuse.
    out[2 * tokens + t] = target >= a.vocabulary                             ? NAN
                          : target >= 0 && column >= 0 && column < a.classes ? to_float(x[column])
                                                                             : 0.0f;
  }
}

/// losses[t]: nats of token t; -1 where it is not counted (a loss is never negative).
template <class T>
__global__ void part_losses(T* logits, const int32_t* targets, const float* statistics,
                            float* losses, int64_t tokens, int64_t v, VocabPartAttr a,
                            int64_t parts, float gradient) {
  for (int64_t t = block_id(); t < tokens; t += block_count()) {
    T* x = logits + t * v;
    const int64_t target = targets[t], column = target - a.first;
    if (target < 0) {
      if (gradient != 0)
        for (int64_t i = thread_id(); i < v; i += thread_count()) x[i] = from_float<T>(0.0f);
      if (thread_id() == 0) losses[t] = -1;
      continue;
    }
    float top = statistics[t], sum = 0, label = 0;
    for (int64_t p = 1; p < parts; ++p) {
      const float other = statistics[3 * p * tokens + t];
      top = other > top ? other : top;
    }
    for (int64_t p = 0; p < parts; ++p) {
      const float part = statistics[(3 * p + 1) * tokens + t];
      if (part > 0) sum += part * expf(statistics[3 * p * tokens + t] - top);
      label += statistics[(3 * p + 2) * tokens + t];
    }
    if (thread_id() == 0) losses[t] = top - label + logf(sum);
    if (gradient == 0) continue;
    const float factor = target < a.vocabulary ? gradient / sum : NAN;
    for (int64_t i = thread_id(); i < v; i += thread_count()) {
      const float p = i < a.classes ? expf(to_float(x[i]) - top) * factor : 0.0f;
      x[i] = from_float<T>(p - (i == column && i < a.classes ? gradient : 0.0f));
    }
  }
}

int threads_for(int64_t columns) { return columns <= 4096 ? row_threads(columns, 1) : 512; }

}  // namespace

void vocab_statistics(const OpCall& call, CudaLaunchContext& context) {
  const int64_t tokens = call[0].shape[0], v = call[0].shape[1];
  if (tokens == 0) return;
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(part_statistics<T>, blocks_for(tokens, 1, most_blocks(context)), threads_for(v), 0,
           context.stream, data<const T>(call[0]), data<const int32_t>(call[1]),
           data<float>(call[2]), tokens, v, call.get<VocabPartAttr>());
  });
}

void vocab_cross_entropy(const OpCall& call, CudaLaunchContext& context) {
  const auto a = call.get<VocabCrossEntropyAttr>();
  const int64_t tokens = call[0].shape[0], v = call[0].shape[1];
  if (tokens == 0) return;
  float* losses = take<float>(context, tokens);
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(part_losses<T>, blocks_for(tokens, 1, most_blocks(context)), threads_for(v), 0,
           context.stream, data<T>(call[0]), data<const int32_t>(call[1]),
           data<const float>(call[2]), losses, tokens, v, a.part, a.parts,
           static_cast<float>(a.gradient_scale));
  });
  launch(add_losses, 1, tokens < 1024 ? kThreads : 1024, 0, context.stream, losses, tokens,
         data<float>(call[3]));
}

}  // namespace moetwin::cuda_ops
