// attention_backward: probabilities come again from the saved log-sum-exp. One kernel goes over
// keys for each tile of queries (d_q), one over queries for each tile of keys (d_k, d_v): no sums
// between blocks, so no atomics, for seven products instead of five.

#include "backends/cuda/ops/attention.cuh"

namespace moetwin::cuda_ops {
namespace {

constexpr int kWarps = 4, kOwn = kWarps * kTile,
              kOther = 32;  ///< rows of a block, of what it goes over
constexpr int kSumLd = kOther + 4, kHalfLd = kOther + 8;

/// Shared memory in bytes from its start: two tiles of own rows, two of others, per warp two tiles
/// of sums and two of 16-bit factors, two rows of numbers.
struct Layout {
  int ld, own[2], other[2], sums[2], factors[2], numbers[2], bytes;
  __host__ __device__ explicit Layout(int columns) : ld(columns + 8) {
    int at = 0;
    const auto next = [&](int size) {
      const int here = at;
      at += size;
      return here;
    };
    for (int& x : own) x = next(kOwn * ld * 2);
    for (int& x : other) x = next(kOther * ld * 2);
    for (int& x : sums) x = next(kWarps * kTile * kSumLd * 4);
    for (int& x : factors) x = next(kWarps * kTile * kHalfLd * 2);
    for (int& x : numbers) x = next(kOther * 4);
    bytes = at;
  }
};

/// sums [16, kOther] = own rows of a (16 x D) times the transposed rows of b (kOther x D).
template <class T, int tiles>
__device__ void products(const T* a, const T* b, int ld, float* sums) {
#pragma unroll
  for (int n = 0; n < kOther / kTile; ++n) {
    TileSum s;
    s.clear();
#pragma unroll
    for (int d = 0; d < tiles; ++d) {
      TileA<T> left;
      TileB<T, true> right;
      left.load(a + d * kTile, ld);
      right.load(b + n * kTile * ld + d * kTile, ld);
      multiply_add(s, left, right);
    }
    s.store(sums + n * kTile, kSumLd);
  }
}
/// sums (16 x D) += factors (16 x kOther) times rows (kOther x D).
template <class T, int tiles>
__device__ void add_products(TileSum (&sums)[tiles], const T* factors, const T* rows, int ld) {
#pragma unroll
  for (int n = 0; n < kOther / kTile; ++n) {
    TileA<T> left;
    left.load(factors + n * kTile, kHalfLd);
#pragma unroll
    for (int d = 0; d < tiles; ++d) {
      TileB<T> right;
      right.load(rows + n * kTile * ld + d * kTile, ld);
      multiply_add(sums[d], left, right);
    }
  }
}

template <class T, int tiles>
__global__ void __launch_bounds__(kWarps * 32)
    query_gradient(const T* qkv, const float* lse, const float* delta, const T* d_out, T* d_qkv,
                   Heads h, int64_t blocks) {
  const Layout layout(tiles * kTile);
  unsigned char* memory = shared_memory();
  T *q = reinterpret_cast<T*>(memory + layout.own[0]),
    *d_o = reinterpret_cast<T*>(memory + layout.own[1]),
    *k = reinterpret_cast<T*>(memory + layout.other[0]),
    *v = reinterpret_cast<T*>(memory + layout.other[1]);
  float* s = reinterpret_cast<float*>(memory + layout.sums[0]) + warp_id() * kTile * kSumLd;
  float* dp = reinterpret_cast<float*>(memory + layout.sums[1]) + warp_id() * kTile * kSumLd;
  T* ds = reinterpret_cast<T*>(memory + layout.factors[0]) + warp_id() * kTile * kHalfLd;

  const Place at = place_of(h, h.query, blocks);
  const int64_t first = at.tile * kOwn, mine = first + warp_id() * kTile;
  const int kv = at.head / h.group, row = lane_id() / 2, part = lane_id() % 2;
  const int64_t query = mine + row, statistic = (at.begin + query) * h.query + at.head;
  const bool real = query < h.sequence;
  const float shift = real ? lse[statistic] * kLog2E : 0.0f, along = real ? delta[statistic] : 0.0f;
  const float scale = h.scale * kLog2E;
  TileSum sums[tiles];
#pragma unroll
  for (int d = 0; d < tiles; ++d) sums[d].clear();

  const int64_t left = h.sequence - first;
  load_tile(q, layout.ld, qkv + h.q(at.begin + first, at.head), h.width, left, kOwn, tiles * kTile,
            h);
  load_tile(d_o, layout.ld, d_out + h.out(at.begin + first, at.head), h.out_stride(), left, kOwn,
            tiles * kTile, h);
  for (int64_t key = 0; key < first + kOwn && key < h.sequence; key += kOther) {
    sync_block();
    load_tile(k, layout.ld, qkv + h.k(at.begin + key, kv), h.width, h.sequence - key, kOther,
              tiles * kTile, h);
    load_tile(v, layout.ld, qkv + h.v(at.begin + key, kv), h.width, h.sequence - key, kOther,
              tiles * kTile, h);
    copy_async_wait();
    sync_block();
    products<T, tiles>(q + warp_id() * kTile * layout.ld, k, layout.ld, s);
    products<T, tiles>(d_o + warp_id() * kTile * layout.ld, v, layout.ld, dp);
    sync_warp();
    for (int j = part; j < kOther; j += 2) {
      const int i = row * kSumLd + j;
      const float p = real && key + j <= query ? exp2f(s[i] * scale - shift) : 0.0f;
      ds[row * kHalfLd + j] = from_float<T>(p * (dp[i] - along) * h.scale);
    }
    sync_warp();
    add_products<T, tiles>(sums, ds, k, layout.ld);
    sync_warp();
  }
  write_sums(sums, s, kSumLd, d_qkv + h.q(at.begin + mine, at.head), h.width, h.sequence - mine,
             1.0f, h.dim);
}

template <class T, int tiles>
__global__ void __launch_bounds__(kWarps * 32)
    key_gradient(const T* qkv, const float* lse, const float* delta, const T* d_out, T* d_qkv,
                 Heads h, int64_t blocks) {
  const Layout layout(tiles * kTile);
  unsigned char* memory = shared_memory();
  T *k = reinterpret_cast<T*>(memory + layout.own[0]),
    *v = reinterpret_cast<T*>(memory + layout.own[1]),
    *q = reinterpret_cast<T*>(memory + layout.other[0]),
    *d_o = reinterpret_cast<T*>(memory + layout.other[1]);
  float* s = reinterpret_cast<float*>(memory + layout.sums[0]) + warp_id() * kTile * kSumLd;
  float* dp = reinterpret_cast<float*>(memory + layout.sums[1]) + warp_id() * kTile * kSumLd;
  T* probs = reinterpret_cast<T*>(memory + layout.factors[0]) + warp_id() * kTile * kHalfLd;
  T* ds = reinterpret_cast<T*>(memory + layout.factors[1]) + warp_id() * kTile * kHalfLd;
  float *shift = reinterpret_cast<float*>(memory + layout.numbers[0]),
        *along = reinterpret_cast<float*>(memory + layout.numbers[1]);

  Place at = place_of(h, h.key, blocks);
  at.tile = blocks - 1 - at.tile;  // the first keys have the most queries
  const int64_t first = at.tile * kOwn, mine = first + warp_id() * kTile;
  const int row = lane_id() / 2, part = lane_id() % 2;
  const float scale = h.scale * kLog2E;
  TileSum d_k[tiles], d_v[tiles];
#pragma unroll
  for (int d = 0; d < tiles; ++d) d_k[d].clear(), d_v[d].clear();

  const int64_t left = h.sequence - first;
  load_tile(k, layout.ld, qkv + h.k(at.begin + first, at.head), h.width, left, kOwn, tiles * kTile,
            h);
  load_tile(v, layout.ld, qkv + h.v(at.begin + first, at.head), h.width, left, kOwn, tiles * kTile,
            h);
  for (int head = at.head * h.group; head < (at.head + 1) * h.group; ++head)
    for (int64_t query = first; query < h.sequence; query += kOther) {
      const int64_t count = h.sequence - query;
      sync_block();
      load_tile(q, layout.ld, qkv + h.q(at.begin + query, head), h.width, count, kOther,
                tiles * kTile, h);
      load_tile(d_o, layout.ld, d_out + h.out(at.begin + query, head), h.out_stride(), count,
                kOther, tiles * kTile, h);
      for (int j = thread_id(); j < kOther; j += thread_count()) {
        const int64_t statistic = (at.begin + query + j) * h.query + head;
        shift[j] = j < count ? lse[statistic] * kLog2E : 0.0f;
        along[j] = j < count ? delta[statistic] : 0.0f;
      }
      copy_async_wait();
      sync_block();
      products<T, tiles>(k + warp_id() * kTile * layout.ld, q, layout.ld, s);
      products<T, tiles>(v + warp_id() * kTile * layout.ld, d_o, layout.ld, dp);
      sync_warp();
      for (int j = part; j < kOther; j += 2) {
        const int i = row * kSumLd + j;
        const bool seen = mine + row <= query + j && j < count;
        const float p = seen ? exp2f(s[i] * scale - shift[j]) : 0.0f;
        probs[row * kHalfLd + j] = from_float<T>(p);
        ds[row * kHalfLd + j] = from_float<T>(p * (dp[i] - along[j]) * h.scale);
      }
      sync_warp();
      add_products<T, tiles>(d_v, probs, d_o, layout.ld);
      add_products<T, tiles>(d_k, ds, q, layout.ld);
      sync_warp();
    }
  write_sums(d_k, s, kSumLd, d_qkv + h.k(at.begin + mine, at.head), h.width, h.sequence - mine,
             1.0f, h.dim);
  write_sums(d_v, s, kSumLd, d_qkv + h.v(at.begin + mine, at.head), h.width, h.sequence - mine,
             1.0f, h.dim);
}

template <class T>
__global__ void dot_rows(const T* a, const T* b, float* out, int64_t rows, int64_t n) {
  const int64_t warps = block_count() * warp_count();
  for (int64_t r = block_id() * warp_count() + warp_id(); r < rows; r += warps) {
    float sum = 0;
    for (int64_t i = lane_id(); i < n; i += 32)
      sum += to_float(a[r * n + i]) * to_float(b[r * n + i]);
    sum = warp_sum(sum);
    if (lane_id() == 0) out[r] = sum;
  }
}

template <class T, int tiles>
void run(const OpCall& call, CudaLaunchContext& context, const Heads& h, const float* delta) {
  const int64_t blocks = (h.sequence + kOwn - 1) / kOwn;
  const auto go = [&](auto kernel, int heads) {
    launch(kernel, blocks * heads * h.sequences, kWarps * 32, Layout(tiles * kTile).bytes,
           context.stream, data<const T>(call[0]), data<const float>(call[2]), delta,
           data<const T>(call[3]), data<T>(call[4]), h, blocks);
  };
  go(query_gradient<T, tiles>, h.query);
  go(key_gradient<T, tiles>, h.key);
}

}  // namespace

const float* attention_delta(const OpCall& call, CudaLaunchContext& context, const Heads& h) {
  const int64_t rows = call[2].elements();
  float* delta = take<float>(context, rows);
  with_real(call[1].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(dot_rows<T>, blocks_for(rows, kThreads / 32, most_blocks(context)), kThreads, 0,
           context.stream, data<const T>(call[1]), data<const T>(call[3]), delta, rows,
           int64_t{h.value});
  });
  return delta;
}

void attention_backward(const OpCall& call, CudaLaunchContext& context) {
  if (call[0].shape[0] == 0) return;
  const Heads h = heads_of(call);
  const float* delta = attention_delta(call, context, h);
  if (!fits_tile(call, h)) return plain_attention_backward(call, context, h, delta);
  const auto go = [&](auto tag) {
    using T = typename decltype(tag)::type;
    h.dim <= 64 ? run<T, 4>(call, context, h, delta) : run<T, 8>(call, context, h, delta);
  };
  call[0].dtype == DType::bf16 ? go(TypeTag<bf16>{}) : go(TypeTag<f16>{});
}

}  // namespace moetwin::cuda_ops
