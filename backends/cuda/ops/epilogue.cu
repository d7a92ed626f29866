#include "backends/cuda/ops/epilogue.h"
#include "backends/cuda/ops/gelu.cuh"
#include "backends/cuda/ops/host.h"
#include "backends/cuda/ops/upload.h"

namespace moetwin::cuda_ops {
namespace {

/// A warp per row; row_begin [groups + 1].
template <class T, int step>
__global__ void finish_rows(T* c, AnyReal bias, AnyReal pre, Epilogue epilogue,
                            const int64_t* row_begin, int64_t groups, int64_t rows, int64_t n) {
  const int64_t warps = block_count() * warp_count();
  for (int64_t r = block_id() * warp_count() + warp_id(); r < rows; r += warps) {
    const int64_t group = bias.p ? find_group(row_begin, groups, r) : 0;
    for (int64_t col = lane_id() * step; col < n; col += 32 * step) {
      float v[step], b[step];
      load(c + r * n + col, v);
      if (bias.p) {
        bias.load_to(group * n + col, b);
#pragma unroll
        for (int j = 0; j < step; ++j) v[j] += b[j];
      }
      if (pre.p) pre.store_from(r * n + col, v);
      if (epilogue != Epilogue::none)
#pragma unroll
        for (int j = 0; j < step; ++j) v[j] = gelu_of(v[j], epilogue == Epilogue::gelu_tanh);
      store(c + r * n + col, v);
    }
  }
}

}  // namespace

void finish_product(CudaLaunchContext& context, const Tensor& c, const Tensor& bias,
                    const Tensor& pre, Epilogue epilogue, const std::vector<int64_t>& rows) {
  if (!bias.defined() && !pre.defined() && epilogue == Epilogue::none) return;
  const int64_t n = c.shape[1], groups = static_cast<int64_t>(rows.size());
  std::vector<int64_t> begin = {0};
  for (int64_t r : rows) begin.push_back(begin.back() + r);
  const int64_t* row_begin = bias.defined() ? upload(context, begin) : nullptr;
  const bool packed = n % kPacked == 0 && aligned(c.data(), 16) && aligned(bias.data(), 16) &&
                      aligned(pre.data(), 16);
  with_real(c.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(packed ? finish_rows<T, kPacked> : finish_rows<T, 1>,
           blocks_for(begin.back(), kThreads / 32, most_blocks(context)), kThreads, 0,
           context.stream, data<T>(c), any_real(bias), any_real(pre), epilogue, row_begin, groups,
           begin.back(), n);
  });
}

}  // namespace moetwin::cuda_ops
