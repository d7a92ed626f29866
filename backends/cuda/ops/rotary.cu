// rotary: a block per token; angles in double once per token, then all heads turn.

#include "backends/cuda/ops/rotary.cuh"

namespace moetwin::cuda_ops {
namespace {

template <class T>
__global__ void turn(T* qkv, RotaryAttr a, int64_t tokens, int64_t width) {
  float* cosine = reinterpret_cast<float*>(shared_memory());
  const int half = static_cast<int>(a.head_dim / 2);
  float* sine = cosine + half;
  for (int64_t t = block_id(); t < tokens; t += block_count()) {
    sync_block();  // the heads of the token before have read their angles
    rotary_fill(a, static_cast<double>(t % a.sequence_length), a.head_dim, a.inverse, cosine, sine);
    sync_block();
    T* row = qkv + t * width;
    const int64_t pairs = (a.query_heads + a.kv_heads) * half;
    for (int64_t p = thread_id(); p < pairs; p += thread_count()) {
      const int64_t head = p / half;
      const int i = static_cast<int>(p % half);
      T *x = row + head * a.head_dim + i, *y = x + half;
      const float u = to_float(*x), v = to_float(*y);
      *x = from_float<T>(u * cosine[i] - v * sine[i]);
      *y = from_float<T>(u * sine[i] + v * cosine[i]);
    }
  }
}

}  // namespace

void rotary(const OpCall& call, CudaLaunchContext& context) {
  const auto a = call.get<RotaryAttr>();
  const int64_t tokens = call[0].shape[0], width = call[0].shape[1];
  const int64_t pairs = (a.query_heads + a.kv_heads) * (a.head_dim / 2);
  with_real(call[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(turn<T>, blocks_for(tokens, 1, most_blocks(context)), row_threads(pairs, 1),
           a.head_dim * static_cast<int64_t>(sizeof(float)), context.stream, data<T>(call[0]), a,
           tokens, width);
  });
}

}  // namespace moetwin::cuda_ops
