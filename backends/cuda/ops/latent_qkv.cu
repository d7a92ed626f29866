// latent_qkv, latent_qkv_backward: a block per token; angles once per token, then all heads turn.

#include "backends/cuda/ops/rotary.cuh"

namespace moetwin::cuda_ops {
namespace {

struct Pair {
  float x, y;
};
__device__ inline Pair turned(float u, float v, float cosine, float sine) {
  return {u * cosine - v * sine, u * sine + v * cosine};
}

struct Rows {
  int heads, nope, rope, value, dim, kv_head;
  int64_t q_width, kv_width, width;
};
Rows rows_of(const LatentAttr& a) {
  Rows r;
  r.heads = static_cast<int>(a.heads);
  r.nope = static_cast<int>(a.nope_dim);
  r.rope = static_cast<int>(a.rope_dim);
  r.value = static_cast<int>(a.value_dim);
  r.dim = r.nope + r.rope;
  r.kv_head = r.nope + r.value;
  r.q_width = a.heads * r.dim;
  r.kv_width = a.heads * r.kv_head;
  r.width = 2 * r.q_width + a.heads * r.value;
  return r;
}

template <class T>
__global__ void pack(const T* q, const T* kv, const T* k_rope, T* qkv, LatentAttr a, Rows r,
                     int64_t tokens) {
  float* cosine = reinterpret_cast<float*>(shared_memory());
  const int half = r.rope / 2;
  float* sine = cosine + half;
  for (int64_t t = block_id(); t < tokens; t += block_count()) {
    sync_block();  // the heads of the token before have read their angles
    rotary_fill(a, static_cast<double>(t % a.sequence_length), r.rope, false, cosine, sine);
    sync_block();
    const T *from_q = q + t * r.q_width, *from_kv = kv + t * r.kv_width,
            *shared = k_rope + t * r.rope;
    T *queries = qkv + t * r.width, *keys = queries + r.q_width, *values = keys + r.q_width;
    for (int i = thread_id(); i < r.heads * r.nope; i += thread_count()) {
      const int h = i / r.nope, j = i % r.nope;
      queries[h * r.dim + j] = from_q[h * r.dim + j];
      keys[h * r.dim + j] = from_kv[h * r.kv_head + j];
    }
    for (int i = thread_id(); i < r.heads * half; i += thread_count()) {
      const int h = i / half, j = i % half, at = h * r.dim + r.nope + j;
      const Pair query =
          turned(to_float(from_q[at]), to_float(from_q[at + half]), cosine[j], sine[j]);
      queries[at] = from_float<T>(query.x);
      queries[at + half] = from_float<T>(query.y);
      const Pair key = turned(to_float(shared[j]), to_float(shared[j + half]), cosine[j], sine[j]);
      keys[at] = from_float<T>(key.x);
      keys[at + half] = from_float<T>(key.y);
    }
    for (int i = thread_id(); i < r.heads * r.value; i += thread_count())
      values[i] = from_kv[i / r.value * r.kv_head + r.nope + i % r.value];
  }
}

template <class T>
__global__ void unpack(const T* d_qkv, T* d_q, T* d_kv, T* d_k_rope, LatentAttr a, Rows r,
                       int64_t tokens) {
  float* cosine = reinterpret_cast<float*>(shared_memory());
  const int half = r.rope / 2;
  float* sine = cosine + half;
  for (int64_t t = block_id(); t < tokens; t += block_count()) {
    sync_block();
    rotary_fill(a, static_cast<double>(t % a.sequence_length), r.rope, true, cosine, sine);
    sync_block();
    const T *queries = d_qkv + t * r.width, *keys = queries + r.q_width, *values = keys + r.q_width;
    T *to_q = d_q + t * r.q_width, *to_kv = d_kv + t * r.kv_width, *shared = d_k_rope + t * r.rope;
    for (int i = thread_id(); i < r.heads * r.nope; i += thread_count()) {
      const int h = i / r.nope, j = i % r.nope;
      to_q[h * r.dim + j] = queries[h * r.dim + j];
      to_kv[h * r.kv_head + j] = keys[h * r.dim + j];
    }
    for (int i = thread_id(); i < r.heads * half; i += thread_count()) {
      const int j = i % half, at = i / half * r.dim + r.nope + j;
      const Pair query =
          turned(to_float(queries[at]), to_float(queries[at + half]), cosine[j], sine[j]);
      to_q[at] = from_float<T>(query.x);
      to_q[at + half] = from_float<T>(query.y);
    }
    for (int j = thread_id(); j < half; j += thread_count()) {
      float x = 0, y = 0;
      for (int h = 0; h < r.heads; ++h) {
        x += to_float(keys[h * r.dim + r.nope + j]);
        y += to_float(keys[h * r.dim + r.nope + j + half]);
      }
      const Pair key = turned(x, y, cosine[j], sine[j]);
      shared[j] = from_float<T>(key.x);
      shared[j + half] = from_float<T>(key.y);
    }
    for (int i = thread_id(); i < r.heads * r.value; i += thread_count())
      to_kv[i / r.value * r.kv_head + r.nope + i % r.value] = values[i];
  }
}

}  // namespace

void latent_qkv(const OpCall& call, CudaLaunchContext& context) {
  const auto a = call.get<LatentAttr>();
  const Rows r = rows_of(a);
  const int64_t tokens = call[3].shape[0];
  with_real(call[3].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(pack<T>, blocks_for(tokens, 1, most_blocks(context)), row_threads(r.kv_width, 1),
           a.rope_dim * static_cast<int64_t>(sizeof(float)), context.stream, data<const T>(call[0]),
           data<const T>(call[1]), data<const T>(call[2]), data<T>(call[3]), a, r, tokens);
  });
}

void latent_qkv_backward(const OpCall& call, CudaLaunchContext& context) {
  const auto a = call.get<LatentAttr>();
  const Rows r = rows_of(a);
  const int64_t tokens = call[0].shape[0];
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(unpack<T>, blocks_for(tokens, 1, most_blocks(context)), row_threads(r.kv_width, 1),
           a.rope_dim * static_cast<int64_t>(sizeof(float)), context.stream, data<const T>(call[0]),
           data<T>(call[1]), data<T>(call[2]), data<T>(call[3]), a, r, tokens);
  });
}

}  // namespace moetwin::cuda_ops
