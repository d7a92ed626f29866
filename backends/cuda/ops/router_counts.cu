// router_scripted, accumulate_counts, balance_bias_update.

#include "backends/cuda/ops/host.h"
#include "backends/cuda/ops/upload.h"
#include "core/ops/dealt_order.h"
#include "core/ops/router.h"

namespace moetwin::cuda_ops {
namespace {

/// One block: begin[e] = wanted assignments of lower experts, begin[E] = of all; counts = wanted,
/// 0.
__global__ void scan_wanted(const int64_t* wanted, int64_t experts, int64_t* begin,
                            int64_t* counts) {
  int before = 0;
  for (int64_t first = 0; first < experts; first += thread_count()) {
    const int64_t e = first + thread_id();
    int total = 0;
    const int mine = block_exclusive_sum(e < experts ? static_cast<int>(wanted[e]) : 0, total);
    if (e < experts) {
      begin[e] = before + mine;
      counts[e] = wanted[e];
    }
    before += total;
  }
  if (thread_id() == 0) {
    begin[experts] = before;
    counts[experts] = 0;
  }
}

/// Assignment a goes to the token dealt to as number a % T, slot a / T.
template <class T>
__global__ void assign(const int64_t* begin, int32_t* ids, T* weights, DealtOrder order, int64_t k,
                       int64_t experts) {
  const int64_t sum = begin[experts];
  for (int64_t i = grid_thread(); i < order.tokens * k; i += grid_threads()) {
    const int64_t assignment = i % k * order.tokens + order.number(i / k);
    ids[i] = assignment < sum ? static_cast<int32_t>(find_group(begin, experts, assignment)) : -1;
    weights[i] = from_float<T>(static_cast<float>(1.0 / static_cast<double>(k)));
  }
}
template <class T>
__global__ void spread_probs(const int64_t* wanted, const int64_t* begin, T* probs, int64_t n,
                             int64_t experts) {
  const double sum = static_cast<double>(begin[experts]);
  for (int64_t i = grid_thread(); i < n; i += grid_threads())
    probs[i] = from_float<T>(
        static_cast<float>(sum > 0 ? static_cast<double>(wanted[i % experts]) / sum : 0.0));
}

__global__ void add_counts(const int64_t* counts, int64_t* total, int64_t n) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) total[i] += counts[i];
}

/// One block. sign(mean n - n_i) in integers: E n_i against the sum; or of the average excess.
__global__ void move_bias(const int64_t* counts, AnyReal bias, AnyReal excess, int64_t experts,
                          double rate, double ema, float* moved) {
  int64_t total = 0;
  for (int64_t e = thread_id(); e < experts; e += thread_count()) total += counts[e];
  total = block_sum(total);
  double mean = 0;
  for (int64_t e = thread_id(); e < experts; e += thread_count()) {
    double side = static_cast<double>(counts[e] * experts - total);
    if (excess.p) {
      const double now = total ? side / static_cast<double>(total) : 0.0;
      const float average =
          static_cast<float>(ema * static_cast<double>(excess.get(e)) + (1 - ema) * now);
      excess.set(e, average);
      side = static_cast<double>(average);
    }
    const double sign = side < 0 ? 1.0 : side > 0 ? -1.0 : 0.0;
    moved[e] = bias.get(e) + static_cast<float>(rate * sign);
    mean += static_cast<double>(moved[e]);
  }
  mean = block_sum(mean) / static_cast<double>(experts);
  for (int64_t e = thread_id(); e < experts; e += thread_count())
    bias.set(e, moved[e] - static_cast<float>(mean));
}

}  // namespace

void router_scripted(const OpCall& call, CudaLaunchContext& context) {
  const int64_t k = call.get<ScriptedAttr>().top_k;
  const int64_t tokens = call[1].shape[0], experts = call[1].shape[1];
  const int64_t* wanted = data<const int64_t>(call[0]);
  if (tokens * k >= int64_t{1} << 31)
    throw Error(ErrorClass::internal, "assignments are numbered in 32 bits");
  const DealtOrder order = DealtOrder::of(tokens);
  int64_t* begin = take<int64_t>(context, experts + 1);
  launch(scan_wanted, 1, kThreads, 0, context.stream, wanted, experts, begin,
         data<int64_t>(call[4]));
  with_real(call[1].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(assign<T>, blocks_for(tokens * k, kThreads, most_blocks(context)), kThreads, 0,
           context.stream, begin, data<int32_t>(call[3]), data<T>(call[2]), order, k, experts);
    launch(spread_probs<T>, blocks_for(tokens * experts, kThreads, most_blocks(context)), kThreads,
           0, context.stream, wanted, begin, data<T>(call[1]), tokens * experts, experts);
  });
}

void accumulate_counts(const OpCall& call, CudaLaunchContext& context) {
  const int64_t n = call[0].elements();
  launch(add_counts, blocks_for(n, kThreads, most_blocks(context)), kThreads, 0, context.stream,
         data<const int64_t>(call[0]), data<int64_t>(call[1]), n);
}

void balance_bias_update(const OpCall& call, CudaLaunchContext& context) {
  const int64_t experts = call[1].elements();
  if (experts == 0) return;
  const auto& attr = call.get<BiasUpdateAttr>();
  launch(move_bias, 1, kThreads, 0, context.stream, data<const int64_t>(call[0]), any_real(call[1]),
         any_real(call[2]), experts, attr.rate, attr.ema, take<float>(context, experts));
}

}  // namespace moetwin::cuda_ops
