#pragma once
// What the attention kernels share: where heads lie in the packed projections, and tiles of their
// rows in shared memory. Softmax works in powers of two: exp(x) = 2^(x log2 e).

#include "backends/cuda/ops/host.h"
#include "core/ops/attention.h"

namespace moetwin::cuda_ops {

inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.69314718055994531f;

struct Heads {
  int64_t sequences, sequence, width;  ///< width: elements of a packed row
  int query, key, dim, value, group;   ///< value: its elements; group: query heads of a key head
  float scale;
  bool packed;  ///< rows of heads can be moved 16 bytes at a time

  __device__ int64_t q(int64_t token, int head) const {
    return token * width + int64_t{head} * dim;
  }
  __device__ int64_t k(int64_t token, int kv) const {
    return token * width + (int64_t{query} + kv) * dim;
  }
  __device__ int64_t v(int64_t token, int kv) const {
    return token * width + (int64_t{query} + key) * dim + int64_t{kv} * value;
  }
  __device__ int64_t out(int64_t token, int head) const { return (token * query + head) * value; }
  __device__ int64_t out_stride() const { return int64_t{query} * value; }
};

inline Heads heads_of(const OpCall& call) {
  const auto a = call.get<HeadsAttr>();
  Heads h;
  h.sequence = a.sequence_length;
  h.sequences = call[0].shape[0] / a.sequence_length;
  h.width = call[0].shape[1];
  h.query = static_cast<int>(a.query_heads);
  h.key = static_cast<int>(a.kv_heads);
  h.dim = static_cast<int>(a.head_dim);
  h.value = static_cast<int>(a.value_width());
  h.group = h.query / h.key;
  h.scale =
      static_cast<float>(a.scale != 0 ? a.scale : 1 / std::sqrt(static_cast<double>(a.head_dim)));
  h.packed = h.dim % kPacked == 0;
  for (int i = 0; i < call.count; ++i) h.packed = h.packed && aligned(call[i].data(), 16);
  return h;
}

/// Which rows of which head a block works on: tiles of `rows` rows of a sequence, heads, sequences.
/// Tiles come in descending order: under the causal mask the later queries (or, counted from the
/// end, the earlier keys) have the most work, and start first.
struct Place {
  int64_t tile, begin;  ///< begin: first token of the sequence
  int head;
};
__device__ inline Place place_of(const Heads& h, int heads, int64_t tiles) {
  const int64_t per_tile = h.sequences * heads, at = block_id() % per_tile;
  return {tiles - 1 - block_id() / per_tile, at / heads * h.sequence, static_cast<int>(at % heads)};
}

/// `count` rows of T from global to shared memory, `rows` of the tile filled; rows beyond and
/// columns from dim to `columns` become 0. Arrives with copy_async_wait.
template <class T>
__device__ void load_tile(T* to, int ld, const T* from, int64_t stride, int64_t count, int rows,
                          int columns, const Heads& h) {
  if (h.packed) {
    const int pieces = columns / kPacked;
    for (int i = thread_id(); i < rows * pieces; i += thread_count()) {
      const int row = i / pieces, col = i % pieces * kPacked;
      T* here = to + row * ld + col;
      if (row < count && col < h.dim)
        copy_async(here, from + row * stride + col);
      else
        *reinterpret_cast<Pack<T>*>(here) = Pack<T>{};
    }
    return;
  }
  for (int i = thread_id(); i < rows * columns; i += thread_count()) {
    const int row = i / columns, col = i % columns;
    to[row * ld + col] =
        row < count && col < h.dim ? from[row * stride + col] : from_float<T>(0.0f);
  }
}

/// A warp writes 16 rows of sums to global memory: out[row * stride + col] = sum * factor of its
/// row, for `count` rows and the head's columns. Lanes 2 r and 2 r + 1 hold row r's factor.
/// `scratch`: 16 x ld.
template <class T, int tiles>
__device__ void write_sums(TileSum (&sums)[tiles], float* scratch, int ld, T* out, int64_t stride,
                           int64_t count, float factor, int dim) {
  const int row = lane_id() / 2;
#pragma unroll
  for (int d = 0; d < tiles; ++d) {
    sums[d].store(scratch, ld);
    sync_warp();
    const int first = lane_id() % 2 * kPacked;
    if (row < count)
#pragma unroll
      for (int j = 0; j < kPacked; ++j) {
        const int col = d * kTile + first + j;
        if (col < dim)
          out[row * stride + col] = from_float<T>(scratch[row * ld + first + j] * factor);
      }
    sync_warp();
  }
}

// The kernels for fp32, and for heads too wide for the matrix tile.
void plain_attention(const OpCall& call, CudaLaunchContext& context, const Heads& h);
void plain_attention_backward(const OpCall& call, CudaLaunchContext& context, const Heads& h,
                              const float* delta);
/// delta[t, head] = d_out . out, in scratch memory.
const float* attention_delta(const OpCall& call, CudaLaunchContext& context, const Heads& h);

/// Heads that the matrix tile takes.
inline bool fits_tile(const OpCall& call, const Heads& h) {
  return call[0].dtype != DType::f32 && h.dim <= 128 && h.value == h.dim;
}

}  // namespace moetwin::cuda_ops
