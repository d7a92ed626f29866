#pragma once
// What kernels may use of the machine. Two bodies with the same names: the GPU's (device_cuda.cuh)
// and, where the host compiler reads a kernel, an emulated one (tests/cuda_on_host). Kernels use
// nothing else: no warp intrinsics, no inline assembly, no __shared__, no chevrons.
//
//   thread_id() thread_count() lane_id() warp_id() warp_count() block_id() block_count(): of 1-D
//   blocks in
//     a 1-D grid; blocks are whole warps
//   shared_memory(): the block's dynamic shared memory, aligned to 16 bytes (128 in practice)
//   sync_warp() sync_block(): all threads of the warp or block
//   warp_sum warp_max block_sum block_max: everybody gets the result; a fixed tree, so the same
//   bits in
//     every run. warp_shuffle(x, lane) warp_ballot(bool) warp_match(int) block_exclusive_sum(int,
//     total)
//   atomic_add atomic_min: integers only
//   copy_async copy_async_wait: 16 bytes from global to shared memory
//   TileA TileB TileSum multiply_add scale_rows: the 16x16x16 matrix tile of a warp, 16-bit
//   operands, fp32
//     sums; tiles lie at multiples of 32 bytes, their rows at multiples of 16
//   fused(a, b, c): a b + c, where the compiler may not fuse by itself (-fmad=false)
//   bf16 f16 to_float from_float<T>: rounding to nearest even

#ifdef __CUDACC__
#include "backends/cuda/device_cuda.cuh"
#else
#include <emulated_device.h>
#endif

namespace moetwin {

/// 16 bytes of elements: loaded and stored as one.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  T v[kSize];
};

/// N elements of any type, aligned as one piece: what a thread moves at a time.
template <class T, int N>
struct alignas(sizeof(T) * N) Vector {
  T v[N];
};

/// First index and stride of a loop over all threads of the grid.
__device__ __forceinline__ int64_t grid_thread() {
  return block_id() * thread_count() + thread_id();
}
__device__ __forceinline__ int64_t grid_threads() { return block_count() * thread_count(); }

}  // namespace moetwin
