// attention: one pass over keys and values with a running softmax (Dao et al. 2022), a warp per 16
// queries, products on the matrix tile.

#include "backends/cuda/ops/attention.cuh"

namespace moetwin::cuda_ops {
namespace {

constexpr int kWarps = 4, kQueries = kWarps * kTile, kKeys = 64;
constexpr int kScoreLd = kKeys + 4, kProbLd = kKeys + 8;

/// Shared memory, in bytes from its start, of heads of `columns` padded columns.
struct Layout {
  int ld, q, k, v, scores, probs, factors, bytes;
  __host__ __device__ explicit Layout(int columns) : ld(columns + 8) {
    q = 0;
    k = q + kQueries * ld * 2;
    v = k + kKeys * ld * 2;
    scores = v + kKeys * ld * 2;
    probs = scores + kWarps * kTile * kScoreLd * 4;
    factors = probs + kWarps * kTile * kProbLd * 2;
    bytes = factors + kWarps * kTile * 4;
  }
};

template <class T, int tiles>
__global__ void __launch_bounds__(kWarps * 32)
    flash(const T* qkv, T* out, float* lse, Heads h, int64_t blocks) {
  const Layout layout(tiles * kTile);
  unsigned char* memory = shared_memory();
  T *q = reinterpret_cast<T*>(memory + layout.q), *k = reinterpret_cast<T*>(memory + layout.k),
    *v = reinterpret_cast<T*>(memory + layout.v);
  float* scores = reinterpret_cast<float*>(memory + layout.scores) + warp_id() * kTile * kScoreLd;
  T* probs = reinterpret_cast<T*>(memory + layout.probs) + warp_id() * kTile * kProbLd;
  float* factors = reinterpret_cast<float*>(memory + layout.factors) + warp_id() * kTile;

  const Place at = place_of(h, h.query, blocks);
  const int64_t first = at.tile * kQueries;
  const int kv = at.head / h.group, row = lane_id() / 2, part = lane_id() % 2;
  const int64_t query = first + warp_id() * kTile + row;
  const float scale = h.scale * kLog2E;
  TileRows rows;
  rows.find(scores);
  TileSum sums[tiles];
#pragma unroll
  for (int d = 0; d < tiles; ++d) sums[d].clear();
  float top = -INFINITY, total = 0;

  load_tile(q, layout.ld, qkv + h.q(at.begin + first, at.head), h.width, h.sequence - first,
            kQueries, tiles * kTile, h);
  for (int64_t key = 0; key < first + kQueries && key < h.sequence; key += kKeys) {
    sync_block();  // the tiles before are no longer read
    load_tile(k, layout.ld, qkv + h.k(at.begin + key, kv), h.width, h.sequence - key, kKeys,
              tiles * kTile, h);
    load_tile(v, layout.ld, qkv + h.v(at.begin + key, kv), h.width, h.sequence - key, kKeys,
              tiles * kTile, h);
    copy_async_wait();
    sync_block();
#pragma unroll
    for (int n = 0; n < kKeys / kTile; ++n) {
      TileSum s;
      s.clear();
#pragma unroll
      for (int d = 0; d < tiles; ++d) {
        TileA<T> a;
        TileB<T, true> b;
        a.load(q + warp_id() * kTile * layout.ld + d * kTile, layout.ld);
        b.load(k + n * kTile * layout.ld + d * kTile, layout.ld);
        multiply_add(s, a, b);
      }
      s.store(scores + n * kTile, kScoreLd);
    }
    sync_warp();
    // Two lanes share a row, taking turns at its columns.
    float best = top, sum = 0;
    for (int j = part; j < kKeys; j += 2) {
      float& s = scores[row * kScoreLd + j];
      s = key + j <= query ? s * scale : -INFINITY;
      best = s > best ? s : best;
    }
    const float other = warp_shuffle(best, lane_id() ^ 1);
    best = other > best ? other : best;
    for (int j = part; j < kKeys; j += 2) {
      const float p = exp2f(scores[row * kScoreLd + j] - best);
      probs[row * kProbLd + j] = from_float<T>(p);
      sum += p;
    }
    sum += warp_shuffle(sum, lane_id() ^ 1);
    const float factor = exp2f(top - best);
    total = total * factor + sum;
    top = best;
    if (part == 0) factors[row] = factor;
    sync_warp();
#pragma unroll
    for (int d = 0; d < tiles; ++d) scale_rows(sums[d], rows, factors);
#pragma unroll
    for (int n = 0; n < kKeys / kTile; ++n) {
      TileA<T> a;
      a.load(probs + n * kTile, kProbLd);
#pragma unroll
      for (int d = 0; d < tiles; ++d) {
        TileB<T> b;
        b.load(v + n * kTile * layout.ld + d * kTile, layout.ld);
        multiply_add(sums[d], a, b);
      }
    }
    sync_warp();
  }
  const int64_t mine = first + warp_id() * kTile;
  write_sums(sums, scores, kScoreLd, out + h.out(at.begin + mine, at.head), h.out_stride(),
             h.sequence - mine, 1.0f / total, h.dim);
  if (part == 0 && query < h.sequence)
    lse[(at.begin + query) * h.query + at.head] = (top + log2f(total)) * kLn2;
}

template <class T, int tiles>
void run(const OpCall& call, CudaLaunchContext& context, const Heads& h) {
  const int64_t blocks = (h.sequence + kQueries - 1) / kQueries;
  launch(flash<T, tiles>, blocks * h.query * h.sequences, kWarps * 32, Layout(tiles * kTile).bytes,
         context.stream, data<const T>(call[0]), data<T>(call[1]), data<float>(call[2]), h, blocks);
}

}  // namespace

void attention(const OpCall& call, CudaLaunchContext& context) {
  if (call[0].shape[0] == 0) return;
  const Heads h = heads_of(call);
  if (!fits_tile(call, h)) return plain_attention(call, context, h);
  const auto go = [&](auto tag) {
    using T = typename decltype(tag)::type;
    h.dim <= 64 ? run<T, 4>(call, context, h) : run<T, 8>(call, context, h);
  };
  call[0].dtype == DType::bf16 ? go(TypeTag<bf16>{}) : go(TypeTag<f16>{});
}

}  // namespace moetwin::cuda_ops
