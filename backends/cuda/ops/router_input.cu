// router_input, router_input_backward: a cast with multiplicative jitter by global element.

#include "backends/cuda/ops/host.h"
#include "core/base/philox.h"
#include "core/ops/router.h"

namespace moetwin::cuda_ops {
namespace {

/// The uniform draw of one word of a Philox block.
__device__ __forceinline__ float uniform(uint32_t word) {
  return (static_cast<float>(word >> 8) + 0.5f) * (1.0f / 16777216.0f);
}

/// y = x * factor, or y += x * factor. A thread takes whole Philox blocks: four elements.
template <class X, class Y, bool adds>
__global__ void jitter(const X* x, Y* y, PhiloxKey key, float low, float range, int64_t offset,
                       int64_t n) {
  const int64_t blocks = (offset + n + 3) / 4 - offset / 4;
  for (int64_t b = grid_thread(); b < blocks; b += grid_threads()) {
    const int64_t first = (offset / 4 + b) * 4 - offset;
    PhiloxBlock draw{};
    if (range != 0) draw = philox4x32(key, static_cast<uint64_t>(offset / 4 + b));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t i = first + j;
      if (i < 0 || i >= n) continue;
      float v = to_float(x[i]);
      if (range != 0) v *= low + range * uniform(draw.word[j]);
      if (adds) v = to_float(y[i]) + v;
      y[i] = from_float<Y>(v);
    }
  }
}

template <class X, class Y, bool adds>
void run(const OpCall& call, CudaLaunchContext& context) {
  const auto a = call.get<RouterInputAttr>();
  const int64_t n = call[0].elements(), offset = a.first_token * call[0].shape[1];
  launch(jitter<X, Y, adds>, blocks_for(n + 3, kThreads * 4, most_blocks(context)), kThreads, 0,
         context.stream, data<const X>(call[0]), data<Y>(call[1]), a.key,
         static_cast<float>(1 - a.jitter), static_cast<float>(2 * a.jitter), offset, n);
}

}  // namespace

void router_input(const OpCall& call, CudaLaunchContext& context) {
  with_real(call[0].dtype,
            [&](auto tag) { run<typename decltype(tag)::type, float, false>(call, context); });
}
void router_input_backward(const OpCall& call, CudaLaunchContext& context) {
  with_real(call[1].dtype,
            [&](auto tag) { run<float, typename decltype(tag)::type, true>(call, context); });
}

}  // namespace moetwin::cuda_ops
