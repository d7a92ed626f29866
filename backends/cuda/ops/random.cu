// init_normal, dropout: draws by global element index.

#include "backends/cuda/ops/host.h"
#include "core/base/philox.h"
#include "core/ops/elementwise.h"

namespace moetwin::cuda_ops {
namespace {

template <class T>
__global__ void draw_normal(T* y, InitAttr a, int64_t n) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const int64_t row = i / a.local[2], l = i % a.local[2];
    const int64_t plane = row / a.local[1], j = row % a.local[1];
    const int64_t global =
        ((a.offset[0] + plane) * a.global[1] + a.offset[1] + j) * a.global[2] + a.offset[2] + l;
    const double draw = philox_normal(a.key, static_cast<uint64_t>(global));
    y[row * a.pitch + a.column + l] = from_float<T>(static_cast<float>(a.std * draw));
  }
}

/// A thread takes whole Philox blocks of the global index: four elements a block.
template <class T>
__global__ void drop(const T* x, T* y, PhiloxKey key, float p, float kept, int64_t offset,
                     int64_t n) {
  const int64_t blocks = (offset + n + 3) / 4 - offset / 4;
  for (int64_t b = grid_thread(); b < blocks; b += grid_threads()) {
    const int64_t first = (offset / 4 + b) * 4 - offset;
    const PhiloxBlock draw = philox4x32(key, static_cast<uint64_t>(offset / 4 + b));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t i = first + j;
      if (i < 0 || i >= n) continue;
      const float u = (static_cast<float>(draw.word[j] >> 8) + 0.5f) * (1.0f / 16777216.0f);
      y[i] = from_float<T>(u > p ? to_float(x[i]) * kept : 0.0f);
    }
  }
}

}  // namespace

void init_normal(const OpCall& call, CudaLaunchContext& context) {
  auto a = call.get<InitAttr>();
  a.pitch = a.row_elements();
  const int64_t n = a.local[0] * a.local[1] * a.local[2];
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(draw_normal<T>, blocks_for(n, kThreads, most_blocks(context)), kThreads, 0,
           context.stream, data<T>(call[0]), a, n);
  });
}

void dropout(const OpCall& call, CudaLaunchContext& context) {
  const auto a = call.get<DropoutAttr>();
  const int64_t n = call[0].elements();
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(drop<T>, blocks_for(n, kThreads * 4, most_blocks(context)), kThreads, 0, context.stream,
           data<const T>(call[0]), data<T>(call[1]), a.key, static_cast<float>(a.p),
           static_cast<float>(1 / (1 - a.p)), a.element_offset, n);
  });
}

}  // namespace moetwin::cuda_ops
