// Attention in fp32 arithmetic, for fp32 and for heads wider than the matrix tile's: the same
// passes with tiles of B rows in shared memory, B as large as heads of this width allow.

#include "backends/cuda/ops/attention.cuh"

namespace moetwin::cuda_ops {
namespace {

constexpr int kBlock = 128;

/// Tiles of rows of one head in fp32; ld is odd, so that rows start in different banks.
struct Tiles {
  int rows, ld;
  __device__ float* tile(int i) const {
    return reinterpret_cast<float*>(shared_memory()) + i * rows * ld;
  }
  /// What follows `count` tiles.
  __device__ float* after(int count) const { return tile(count); }
};

template <class T>
__device__ void load_rows(float* to, const Tiles& t, const T* from, int64_t stride, int64_t count,
                          int dim) {
  for (int i = thread_id(); i < t.rows * dim; i += thread_count()) {
    const int row = i / dim, col = i % dim;
    to[row * t.ld + col] = row < count ? to_float(from[row * stride + col]) : 0.0f;
  }
}
template <class T>
__device__ void write_rows(const float* from, const Tiles& t, T* to, int64_t stride, int64_t count,
                           int dim) {
  for (int i = thread_id(); i < t.rows * dim; i += thread_count()) {
    const int row = i / dim, col = i % dim;
    if (row < count) to[row * stride + col] = from_float<T>(from[row * t.ld + col]);
  }
}
__device__ float dot(const float* a, const float* b, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum = fused(a[i], b[i], sum);
  return sum;
}
/// sums [rows x dim] += factors (row r's are factors[r * step_r + j * step_j]) times rows of b.
__device__ void add_products(float* sums, const Tiles& t, const float* factors, int step_r,
                             int step_j, const float* b, int dim) {
  for (int i = thread_id(); i < t.rows * dim; i += thread_count()) {
    const int row = i / dim, col = i % dim;
    float sum = sums[row * t.ld + col];
    for (int j = 0; j < t.rows; ++j)
      sum = fused(factors[row * step_r + j * step_j], b[j * t.ld + col], sum);
    sums[row * t.ld + col] = sum;
  }
}

template <class T>
__global__ void plain_forward(const T* qkv, T* out, float* lse, Heads h, Tiles t, int64_t blocks) {
  float *q = t.tile(0), *k = t.tile(1), *v = t.tile(2), *sums = t.tile(3), *p = t.after(4);
  const int ld = t.rows + 1;
  float *top = p + t.rows * ld, *total = top + t.rows, *factor = total + t.rows;
  const Place at = place_of(h, h.query, blocks);
  const int64_t first = at.tile * t.rows;
  const int kv = at.head / h.group;
  const float scale = h.scale * kLog2E;
  load_rows(q, t, qkv + h.q(at.begin + first, at.head), h.width, h.sequence - first, h.dim);
  for (int i = thread_id(); i < t.rows * h.value; i += thread_count())
    sums[i / h.value * t.ld + i % h.value] = 0;
  for (int r = thread_id(); r < t.rows; r += thread_count()) top[r] = -INFINITY, total[r] = 0;
  for (int64_t key = 0; key < first + t.rows && key < h.sequence; key += t.rows) {
    sync_block();
    load_rows(k, t, qkv + h.k(at.begin + key, kv), h.width, h.sequence - key, h.dim);
    load_rows(v, t, qkv + h.v(at.begin + key, kv), h.width, h.sequence - key, h.value);
    sync_block();
    for (int i = thread_id(); i < t.rows * t.rows; i += thread_count()) {
      const int row = i / t.rows, j = i % t.rows;
      p[row * ld + j] =
          key + j <= first + row ? dot(q + row * t.ld, k + j * t.ld, h.dim) * scale : -INFINITY;
    }
    sync_block();
    for (int row = warp_id(); row < t.rows; row += warp_count()) {
      float best = top[row], sum = 0;
      for (int j = lane_id(); j < t.rows; j += 32)
        best = p[row * ld + j] > best ? p[row * ld + j] : best;
      best = warp_max(best);
      for (int j = lane_id(); j < t.rows; j += 32) {
        p[row * ld + j] = exp2f(p[row * ld + j] - best);
        sum += p[row * ld + j];
      }
      sum = warp_sum(sum);
      if (lane_id() != 0) continue;
      factor[row] = exp2f(top[row] - best);
      total[row] = total[row] * factor[row] + sum;
      top[row] = best;
    }
    sync_block();
    for (int i = thread_id(); i < t.rows * h.value; i += thread_count())
      sums[i / h.value * t.ld + i % h.value] *= factor[i / h.value];
    add_products(sums, t, p, ld, 1, v, h.value);
  }
  sync_block();
  for (int i = thread_id(); i < t.rows * h.value; i += thread_count())
    sums[i / h.value * t.ld + i % h.value] /= total[i / h.value];
  write_rows(sums, t, out + h.out(at.begin + first, at.head), h.out_stride(), h.sequence - first,
             h.value);
  for (int r = thread_id(); r < t.rows && first + r < h.sequence; r += thread_count())
    lse[(at.begin + first + r) * h.query + at.head] = (top[r] + log2f(total[r])) * kLn2;
}

/// p and ds of queries [query, ...) and keys [key, ...): element (r, j) is query r, key j.
__device__ void probabilities(const Heads& h, const Tiles& t, int64_t begin, int head,
                              int64_t query, int64_t key, const float* q, const float* k,
                              const float* v, const float* d_o, const float* lse,
                              const float* delta, float* p, float* ds) {
  const int ld = t.rows + 1;
  for (int i = thread_id(); i < t.rows * t.rows; i += thread_count()) {
    const int r = i / t.rows, j = i % t.rows;
    float probability = 0, slope = 0;
    if (key + j <= query + r && query + r < h.sequence) {
      const int64_t statistic = (begin + query + r) * h.query + head;
      const float s = dot(q + r * t.ld, k + j * t.ld, h.dim) * h.scale;
      probability = expf(s - lse[statistic]);
      slope =
          probability * (dot(d_o + r * t.ld, v + j * t.ld, h.value) - delta[statistic]) * h.scale;
    }
    if (p) p[r * ld + j] = probability;
    ds[r * ld + j] = slope;
  }
}

template <class T>
__global__ void plain_query_gradient(const T* qkv, const float* lse, const float* delta,
                                     const T* d_out, T* d_qkv, Heads h, Tiles t, int64_t blocks) {
  float *q = t.tile(0), *d_o = t.tile(1), *k = t.tile(2), *v = t.tile(3), *sums = t.tile(4),
        *ds = t.after(5);
  const Place at = place_of(h, h.query, blocks);
  const int64_t first = at.tile * t.rows, left = h.sequence - first;
  const int kv = at.head / h.group;
  load_rows(q, t, qkv + h.q(at.begin + first, at.head), h.width, left, h.dim);
  load_rows(d_o, t, d_out + h.out(at.begin + first, at.head), h.out_stride(), left, h.value);
  for (int i = thread_id(); i < t.rows * h.dim; i += thread_count())
    sums[i / h.dim * t.ld + i % h.dim] = 0;
  for (int64_t key = 0; key < first + t.rows && key < h.sequence; key += t.rows) {
    sync_block();
    load_rows(k, t, qkv + h.k(at.begin + key, kv), h.width, h.sequence - key, h.dim);
    load_rows(v, t, qkv + h.v(at.begin + key, kv), h.width, h.sequence - key, h.value);
    sync_block();
    probabilities(h, t, at.begin, at.head, first, key, q, k, v, d_o, lse, delta, nullptr, ds);
    sync_block();
    add_products(sums, t, ds, t.rows + 1, 1, k, h.dim);
  }
  sync_block();
  write_rows(sums, t, d_qkv + h.q(at.begin + first, at.head), h.width, left, h.dim);
}

template <class T>
__global__ void plain_key_gradient(const T* qkv, const float* lse, const float* delta,
                                   const T* d_out, T* d_qkv, Heads h, Tiles t, int64_t blocks) {
  float *k = t.tile(0), *v = t.tile(1), *q = t.tile(2), *d_o = t.tile(3), *d_k = t.tile(4),
        *d_v = t.tile(5), *p = t.after(6), *ds = p + t.rows * (t.rows + 1);
  Place at = place_of(h, h.key, blocks);
  at.tile = blocks - 1 - at.tile;
  const int64_t first = at.tile * t.rows, left = h.sequence - first;
  load_rows(k, t, qkv + h.k(at.begin + first, at.head), h.width, left, h.dim);
  load_rows(v, t, qkv + h.v(at.begin + first, at.head), h.width, left, h.value);
  for (int i = thread_id(); i < t.rows * t.ld; i += thread_count()) d_k[i] = d_v[i] = 0;
  for (int head = at.head * h.group; head < (at.head + 1) * h.group; ++head)
    for (int64_t query = first; query < h.sequence; query += t.rows) {
      const int64_t count = h.sequence - query;
      sync_block();
      load_rows(q, t, qkv + h.q(at.begin + query, head), h.width, count, h.dim);
      load_rows(d_o, t, d_out + h.out(at.begin + query, head), h.out_stride(), count, h.value);
      sync_block();
      probabilities(h, t, at.begin, head, query, first, q, k, v, d_o, lse, delta, p, ds);
      sync_block();
      add_products(d_v, t, p, 1, t.rows + 1, d_o, h.value);
      add_products(d_k, t, ds, 1, t.rows + 1, q, h.dim);
    }
  sync_block();
  write_rows(d_k, t, d_qkv + h.k(at.begin + first, at.head), h.width, left, h.dim);
  write_rows(d_v, t, d_qkv + h.v(at.begin + first, at.head), h.width, left, h.value);
}

int64_t bytes_of(const Tiles& t, int count) {
  return (int64_t{count} * t.rows * t.ld + 2 * t.rows * (t.rows + 1) + 3 * t.rows) *
         static_cast<int64_t>(sizeof(float));
}
/// The largest tiles of which `count` fit.
Tiles tiles_for(const Heads& h, int count) {
  for (int rows : {32, 16, 8, 4}) {
    const Tiles t = {rows, (h.dim > h.value ? h.dim : h.value) | 1};
    if (bytes_of(t, count) <= 96 * 1024) return t;
  }
  throw Error(ErrorClass::capacity,
              "heads of " + std::to_string(h.dim) +
                  " elements do not fit shared memory; legal: up to about 900");
}

}  // namespace

void plain_attention(const OpCall& call, CudaLaunchContext& context, const Heads& h) {
  const Tiles t = tiles_for(h, 4);
  const int64_t blocks = (h.sequence + t.rows - 1) / t.rows;
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(plain_forward<T>, blocks * h.query * h.sequences, kBlock, bytes_of(t, 4), context.stream,
           data<const T>(call[0]), data<T>(call[1]), data<float>(call[2]), h, t, blocks);
  });
}

void plain_attention_backward(const OpCall& call, CudaLaunchContext& context, const Heads& h,
                              const float* delta) {
  const Tiles t = tiles_for(h, 6);
  const int64_t blocks = (h.sequence + t.rows - 1) / t.rows;
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto go = [&](auto kernel, int heads) {
      launch(kernel, blocks * heads * h.sequences, kBlock, bytes_of(t, 6), context.stream,
             data<const T>(call[0]), data<const float>(call[2]), delta, data<const T>(call[3]),
             data<T>(call[4]), h, t, blocks);
    };
    go(plain_query_gradient<T>, h.query);
    go(plain_key_gradient<T>, h.key);
  });
}

}  // namespace moetwin::cuda_ops
