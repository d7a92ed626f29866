#pragma once
// The GPU's body of device.cuh: shuffles, WMMA, cp.async. The only file with intrinsics.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

#include <cstdint>

namespace moetwin {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}
__device__ __forceinline__ float to_float(f16 x) { return __half2float(__ushort_as_half(x.bits)); }
template <class T>
__device__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}
template <>
__device__ __forceinline__ f16 from_float<f16>(float x) {
  return {__half_as_ushort(__float2half_rn(x))};
}

__device__ __forceinline__ int thread_id() { return static_cast<int>(threadIdx.x); }
__device__ __forceinline__ int thread_count() { return static_cast<int>(blockDim.x); }
__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x) & 31; }
__device__ __forceinline__ int warp_id() { return static_cast<int>(threadIdx.x) >> 5; }
__device__ __forceinline__ int warp_count() { return static_cast<int>(blockDim.x) >> 5; }
__device__ __forceinline__ int64_t block_id() { return blockIdx.x; }
__device__ __forceinline__ int64_t block_count() { return gridDim.x; }
__device__ __forceinline__ unsigned char* shared_memory() {
  extern __shared__ __align__(128) unsigned char moetwin_shared_memory[];
  return moetwin_shared_memory;
}

inline constexpr uint32_t kWholeWarp = 0xffffffffu;
__device__ __forceinline__ void sync_warp() { __syncwarp(); }
__device__ __forceinline__ void sync_block() { __syncthreads(); }

template <class T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) x += __shfl_xor_sync(kWholeWarp, x, width);
  return x;
}
template <class T>
__device__ __forceinline__ T warp_max(T x) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
    const T other = __shfl_xor_sync(kWholeWarp, x, width);
    x = x > other ? x : other;
  }
  return x;
}
template <class T>
__device__ __forceinline__ T warp_shuffle(T x, int from) {
  return __shfl_sync(kWholeWarp, x, from);
}
__device__ __forceinline__ uint32_t warp_ballot(bool x) { return __ballot_sync(kWholeWarp, x); }
__device__ __forceinline__ uint32_t warp_match(int x) { return __match_any_sync(kWholeWarp, x); }

// The barrier before the first store keeps a second call from overtaking readers of the first.
template <class T>
__device__ __forceinline__ T block_sum(T x) {
  __shared__ T of_warp[32];
  x = warp_sum(x);
  __syncthreads();
  if (lane_id() == 0) of_warp[warp_id()] = x;
  __syncthreads();
  return warp_sum(lane_id() < warp_count() ? of_warp[lane_id()] : T{});
}
template <class T>
__device__ __forceinline__ T block_max(T x) {
  __shared__ T of_warp[32];
  x = warp_max(x);
  __syncthreads();
  if (lane_id() == 0) of_warp[warp_id()] = x;
  __syncthreads();
  return warp_max(of_warp[lane_id() < warp_count() ? lane_id() : 0]);
}
__device__ __forceinline__ int block_exclusive_sum(int x, int& total) {
  __shared__ int of_warp[32];
  int inclusive = x;
#pragma unroll
  for (int width = 1; width < 32; width *= 2) {
    const int lower = __shfl_up_sync(kWholeWarp, inclusive, width);
    if (lane_id() >= width) inclusive += lower;
  }
  __syncthreads();
  if (lane_id() == 31) of_warp[warp_id()] = inclusive;
  __syncthreads();
  const int sum = lane_id() < warp_count() ? of_warp[lane_id()] : 0;
  total = warp_sum(sum);
  return warp_sum(lane_id() < warp_id() ? sum : 0) + inclusive - x;
}

/// a b + c with one rounding.
__device__ __forceinline__ float fused(float a, float b, float c) { return fmaf(a, b, c); }

__device__ __forceinline__ int count_bits(uint32_t x) { return __popc(x); }
__device__ __forceinline__ int lowest_bit(uint32_t x) { return __ffs(static_cast<int>(x)) - 1; }
__device__ __forceinline__ uint32_t float_bits(float x) { return __float_as_uint(x); }

__device__ __forceinline__ int atomic_add(int* p, int x) { return atomicAdd(p, x); }
__device__ __forceinline__ int64_t atomic_add(int64_t* p, int64_t x) {
  return static_cast<int64_t>(
      atomicAdd(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(x)));
}
__device__ __forceinline__ void atomic_min(int64_t* p, int64_t x) {
  atomicMin(reinterpret_cast<long long*>(p), static_cast<long long>(x));
}

__device__ __forceinline__ void copy_async(void* shared, const void* global) {
  __pipeline_memcpy_async(shared, global, 16);
}
__device__ __forceinline__ void copy_async_wait() {
  __pipeline_commit();
  __pipeline_wait_prior(0);
}

inline constexpr int kTile = 16;

template <class T>
struct MatrixType;
template <>
struct MatrixType<bf16> {
  using type = __nv_bfloat16;
};
template <>
struct MatrixType<f16> {
  using type = __half;
};
template <bool transposed>
struct MatrixLayout {
  using type = nvcuda::wmma::row_major;
};
template <>
struct MatrixLayout<true> {
  using type = nvcuda::wmma::col_major;
};

template <class Use, class T, bool transposed>
struct TileOperand {
  using Element = typename MatrixType<T>::type;
  nvcuda::wmma::fragment<Use, 16, 16, 16, Element, typename MatrixLayout<transposed>::type> v;
  __device__ __forceinline__ void load(const T* p, int ld) {
    nvcuda::wmma::load_matrix_sync(v, reinterpret_cast<const Element*>(p),
                                   static_cast<unsigned>(ld));
  }
};
template <class T, bool transposed = false>
struct TileA : TileOperand<nvcuda::wmma::matrix_a, T, transposed> {};
template <class T, bool transposed = false>
struct TileB : TileOperand<nvcuda::wmma::matrix_b, T, transposed> {};

struct TileSum {
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> v;
  __device__ __forceinline__ void clear() { nvcuda::wmma::fill_fragment(v, 0.0f); }
  __device__ __forceinline__ void store(float* p, int ld) const {
    nvcuda::wmma::store_matrix_sync(p, v, static_cast<unsigned>(ld), nvcuda::wmma::mem_row_major);
  }
};

template <class T, bool ta, bool tb>
__device__ __forceinline__ void multiply_add(TileSum& c, const TileA<T, ta>& a,
                                             const TileB<T, tb>& b) {
  nvcuda::wmma::mma_sync(c.v, a.v, b.v, c.v);
}

// A fragment does not say which elements a thread holds, but equal fragments are spread equally: so
// a matrix of row numbers, loaded as one, tells.
struct TileRows {
  static constexpr int kElements = decltype(TileSum::v)::num_elements;
  int row[kElements];
  __device__ __forceinline__ void find(float* scratch) {
    for (int i = lane_id(); i < kTile * kTile; i += 32) scratch[i] = static_cast<float>(i / kTile);
    __syncwarp();
    TileSum numbers;
    nvcuda::wmma::load_matrix_sync(numbers.v, scratch, kTile, nvcuda::wmma::mem_row_major);
#pragma unroll
    for (int i = 0; i < kElements; ++i) row[i] = static_cast<int>(numbers.v.x[i]);
    __syncwarp();
  }
};
__device__ __forceinline__ void scale_rows(TileSum& c, const TileRows& rows, const float* factors) {
#pragma unroll
  for (int i = 0; i < TileRows::kElements; ++i) c.v.x[i] *= factors[rows.row[i]];
}

}  // namespace moetwin
