// permute_backward, combine, combine_backward: a warp per token, its slots in order.

#include "backends/cuda/ops/host.h"
#include "core/ops/dispatch.h"

namespace moetwin::cuda_ops {
namespace {

constexpr int kWarps = kThreads / 32;

/// out[t] = sum over slots in order of (weights[t,j] or 1) * y[position[t,j] - (slice + first) k].
template <class T, int step>
__global__ void sum_slots(const T* y, const float* weights, const int32_t* position, T* out,
                          RangeAttr a, int64_t h) {
  const int64_t warps = block_count() * warp_count(), first_row = (a.slice + a.first) * a.top_k;
  for (int64_t i = block_id() * warp_count() + warp_id(); i < a.count; i += warps) {
    const int64_t t = a.first + i;
    for (int64_t col = lane_id() * step; col < h; col += 32 * step) {
      float sum[step];
#pragma unroll
      for (int j = 0; j < step; ++j) sum[j] = 0;
      for (int64_t slot = t * a.top_k; slot < (t + 1) * a.top_k; ++slot) {
        const int64_t at = position[slot];
        if (at < 0) continue;
        float v[step];
        load(y + (at - first_row) * h + col, v);
        const float w = weights ? weights[slot] : 1.0f;
#pragma unroll
        for (int j = 0; j < step; ++j) sum[j] += w * v[j];
      }
      store(out + t * h + col, sum);
    }
  }
}

template <class T, int step>
__global__ void combine_gradient(const T* d_out, const T* y, const float* weights,
                                 const int32_t* position, T* d_y, float* d_weights, RangeAttr a,
                                 int64_t h) {
  const int64_t warps = block_count() * warp_count();
  const int64_t first_slot = a.first * a.top_k, first_row = first_slot + a.slice * a.top_k;
  for (int64_t i = block_id() * warp_count() + warp_id(); i < a.count * a.top_k; i += warps) {
    const int64_t slot = first_slot + i, t = slot / a.top_k, at = position[slot];
    float along = 0;
    if (at >= 0) {
      const float w = weights[slot];
      const int64_t row = (at - first_row) * h;
      for (int64_t col = lane_id() * step; col < h; col += 32 * step) {
        float d[step], v[step];
        load(d_out + t * h + col, d);
        load(y + row + col, v);
#pragma unroll
        for (int j = 0; j < step; ++j) {
          along += d[j] * v[j];
          d[j] *= w;
        }
        store(d_y + row + col, d);
      }
    }
    along = warp_sum(along);
    if (lane_id() == 0) d_weights[slot] = along;
  }
}

__global__ void count_placed(const int32_t* position, int64_t n, int* placed) {
  int mine = 0;
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) mine += position[i] >= 0;
  mine = block_sum(mine);
  if (thread_id() == 0) atomic_add(placed, mine);
}
/// Rows of dropped assignments are zero; where there are none nothing is written.
__global__ void clear_unless(const int* placed, int64_t rows, uint16_t* y, int64_t words) {
  if (*placed >= rows) return;
  for (int64_t i = grid_thread(); i < words; i += grid_threads()) y[i] = 0;
}

void sum_all(CudaLaunchContext& context, const Tensor& y, const Tensor& weights,
             const Tensor& position, const Tensor& out, const RangeAttr& a) {
  const int64_t h = out.shape[1];
  const bool packed = h % kPacked == 0 && aligned(y.data(), 16) && aligned(out.data(), 16);
  with_real(y.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(packed ? sum_slots<T, kPacked> : sum_slots<T, 1>,
           blocks_for(a.count, kWarps, most_blocks(context)), kThreads, 0, context.stream,
           data<const T>(y), data<const float>(weights), data<const int32_t>(position),
           data<T>(out), a, h);
  });
}

}  // namespace

void permute_backward(const OpCall& call, CudaLaunchContext& context) {
  sum_all(context, call[0], {}, call[1], call[2], call.get<RangeAttr>());
}

void combine(const OpCall& call, CudaLaunchContext& context) {
  sum_all(context, call[0], call[1], call[2], call[3], call.get<RangeAttr>());
}

void combine_backward(const OpCall& call, CudaLaunchContext& context) {
  const auto a = call.get<RangeAttr>();
  const int64_t h = call[0].shape[1], rows = call[1].shape[0], slots = a.count * a.top_k;
  const bool packed = h % kPacked == 0 && aligned(call[0].data(), 16) &&
                      aligned(call[1].data(), 16) && aligned(call[4].data(), 16);
  if (rows > 0) {
    int* placed = take<int>(context, 1);
    clear(context, placed, sizeof(int));
    launch(count_placed, blocks_for(slots, kThreads * 4, most_blocks(context)), kThreads, 0,
           context.stream, data<const int32_t>(call[3]) + a.first * a.top_k, slots, placed);
    const int64_t words = call[4].bytes() / 2;
    launch(clear_unless, blocks_for(words, kThreads * 8, most_blocks(context)), kThreads, 0,
           context.stream, placed, rows, data<uint16_t>(call[4]), words);
  }
  with_real(call[1].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(packed ? combine_gradient<T, kPacked> : combine_gradient<T, 1>,
           blocks_for(slots, kWarps, most_blocks(context)), kThreads, 0, context.stream,
           data<const T>(call[0]), data<const T>(call[1]), data<const float>(call[2]),
           data<const int32_t>(call[3]), data<T>(call[4]), data<float>(call[5]), a, h);
  });
}

}  // namespace moetwin::cuda_ops
