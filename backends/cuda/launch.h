#pragma once
// The one way to start a kernel: a function, so that nvcc and the host compiler read the same
// files.

#include <cstdint>
#include <tuple>
#include <utility>

#ifdef __CUDACC__
#include "backends/cuda/launch_cuda.h"
#else
#include <emulated_launch.h>
#endif

namespace moetwin {

/// Enqueues `blocks` blocks of `threads` threads, each block with `shared_bytes` of dynamic shared
/// memory. No blocks: nothing. Arguments are converted to the kernel's parameters, which are
/// values.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), int64_t blocks, int threads, int64_t shared_bytes,
            cudaStream_t stream, Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments));
  if (blocks <= 0) return;
  start_kernel(kernel, blocks, threads, shared_bytes, stream,
               std::tuple<Parameters...>(static_cast<Parameters>(arguments)...));
}

/// Blocks for `work` items of `per_block` each, at most `most`: kernels loop over what is left.
inline int64_t blocks_for(int64_t work, int64_t per_block, int64_t most) {
  const int64_t blocks = (work + per_block - 1) / per_block;
  return blocks < most ? blocks : most;
}

}  // namespace moetwin
