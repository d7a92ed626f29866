// embed, embed_backward. The backward groups tokens by id (counts, a scan, lists put in order), so
// that rows are added in ascending token without float atomics.

#include <algorithm>

#include "backends/cuda/ops/host.h"
#include "core/ops/embedding.h"

namespace moetwin::cuda_ops {
namespace {

constexpr int kWarps = kThreads / 32;

/// An id outside the vocabulary makes its row NaN: a kernel cannot refuse.
template <class T, int step>
__global__ void look_up(const int32_t* ids, AnyReal table, AnyReal positions, T* out,
                        int64_t tokens, int64_t rows, EmbedAttr a, int64_t h) {
  const int64_t warps = block_count() * warp_count();
  for (int64_t t = block_id() * warp_count() + warp_id(); t < tokens; t += warps) {
    const int64_t id = ids[t];
    const bool legal = id >= 0 && id < a.vocabulary;
    const int64_t row = id - a.first_row;
    const float offset = static_cast<float>(a.offset);
    for (int64_t col = lane_id() * step; col < h; col += 32 * step) {
      float v[step], p[step];
#pragma unroll
      for (int j = 0; j < step; ++j) v[j] = legal ? 0.0f : NAN;
      if (legal && row >= 0 && row < rows) table.load_to(row * h + col, v);
      if (positions.p) {
        positions.load_to(t % a.sequence_length * h + col, p);
#pragma unroll
        for (int j = 0; j < step; ++j) v[j] += p[j];
      }
      if (offset != 0) {
#pragma unroll
        for (int j = 0; j < step; ++j) v[j] += offset;
      }
      store(out + t * h + col, v);
    }
  }
}

/// Ids count from the table's first row; those of other parts of the vocabulary are passed over.
__global__ void count_ids(const int32_t* ids, int64_t tokens, int64_t first, int64_t vocabulary,
                          int* counts) {
  for (int64_t t = grid_thread(); t < tokens; t += grid_threads()) {
    const int64_t id = ids[t] - first;
    if (id >= 0 && id < vocabulary) atomic_add(counts + id, 1);
  }
}
/// One block: begin[id] = tokens of lower ids; used[u] = the u-th id that occurs; *uses = how many
/// do. A thread takes a run of ids at a time.
__global__ void scan_ids(const int* counts, int64_t vocabulary, int* begin, int* used, int* uses) {
  constexpr int kRun = 16;
  int tokens_before = 0, uses_before = 0;
  for (int64_t base = 0; base < vocabulary; base += thread_count() * kRun) {
    const int64_t first = base + thread_id() * kRun;
    int sum = 0, occurring = 0, tokens = 0, ids = 0;
    for (int64_t id = first; id < first + kRun && id < vocabulary; ++id) {
      sum += counts[id];
      occurring += counts[id] > 0;
    }
    int at = tokens_before + block_exclusive_sum(sum, tokens);
    int u = uses_before + block_exclusive_sum(occurring, ids);
    for (int64_t id = first; id < first + kRun && id < vocabulary; ++id) {
      begin[id] = at;
      at += counts[id];
      if (counts[id] > 0) used[u++] = static_cast<int>(id);
    }
    tokens_before += tokens;
    uses_before += ids;
  }
  if (thread_id() == 0) *uses = uses_before;
}
/// Lists of tokens by id, in any order.
__global__ void list_tokens(const int32_t* ids, int64_t tokens, int64_t first, int64_t vocabulary,
                            const int* begin, int* filled, int* list) {
  for (int64_t t = grid_thread(); t < tokens; t += grid_threads()) {
    const int64_t id = ids[t] - first;
    if (id >= 0 && id < vocabulary)
      list[begin[id] + atomic_add(filled + id, 1)] = static_cast<int>(t);
  }
}
/// A block per id that occurs: puts its list in order (the rank of a token is how many are lower),
/// then adds the rows.
template <class T>
__global__ void add_rows(const int* list, int* ordered, const int* begin, const int* counts,
                         const int* used, const int* uses, const T* d_out, AnyReal d_table,
                         int64_t h) {
  for (int64_t u = block_id(); u < *uses; u += block_count()) {
    const int id = used[u], count = counts[id];
    const int* mine = list + begin[id];
    int* sorted = ordered + begin[id];
    for (int i = thread_id(); i < count; i += thread_count()) {
      int rank = 0;
      for (int j = 0; j < count; ++j) rank += mine[j] < mine[i];
      sorted[rank] = mine[i];
    }
    sync_block();
    for (int64_t col = thread_id(); col < h; col += thread_count()) {
      float sum = d_table.get(id * h + col);
      for (int i = 0; i < count; ++i) sum += to_float(d_out[sorted[i] * h + col]);
      d_table.set(id * h + col, sum);
    }
  }
}
template <class T>
__global__ void add_positions(const T* d_out, AnyReal d_positions, int64_t tokens,
                              int64_t elements) {
  for (int64_t i = grid_thread(); i < elements; i += grid_threads()) {
    float sum = d_positions.get(i);
    for (int64_t at = i; at < tokens; at += elements) sum += to_float(d_out[at]);
    d_positions.set(i, sum);
  }
}

}  // namespace

void embed(const OpCall& call, CudaLaunchContext& context) {
  const int64_t tokens = call[3].shape[0], h = call[3].shape[1];
  auto a = call.get<EmbedAttr>();
  if (a.vocabulary == 0) a.vocabulary = call[1].shape[0];
  const bool packed = h % kPacked == 0 && aligned(call[1].data(), 16) &&
                      aligned(call[2].data(), 16) && aligned(call[3].data(), 16);
  with_real(call[3].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(packed ? look_up<T, kPacked> : look_up<T, 1>,
           blocks_for(tokens, kWarps, most_blocks(context)), kThreads, 0, context.stream,
           data<const int32_t>(call[0]), any_real(call[1]), any_real(call[2]), data<T>(call[3]),
           tokens, call[1].shape[0], a, h);
  });
}

void embed_backward(const OpCall& call, CudaLaunchContext& context) {
  const int64_t tokens = call[1].shape[0], h = call[1].shape[1], vocabulary = call[2].shape[0];
  if (tokens == 0) return;
  if (tokens >= int64_t{1} << 31 || vocabulary >= int64_t{1} << 31)
    throw Error(ErrorClass::internal, "tokens and ids are numbered in 32 bits");
  const int32_t* ids = data<const int32_t>(call[0]);
  const int64_t first = call.get<EmbedAttr>().first_row;
  // counts and filled are cleared together.
  int *counts = take<int>(context, 2 * vocabulary), *filled = counts + vocabulary;
  int *begin = take<int>(context, vocabulary), *used = take<int>(context, vocabulary);
  int *list = take<int>(context, tokens), *ordered = take<int>(context, tokens);
  int* uses = take<int>(context, 1);
  clear(context, counts, 2 * vocabulary * static_cast<int64_t>(sizeof(int)));
  const int64_t blocks = blocks_for(tokens, kThreads, most_blocks(context));
  launch(count_ids, blocks, kThreads, 0, context.stream, ids, tokens, first, vocabulary, counts);
  launch(scan_ids, 1, vocabulary < 4096 ? kThreads : 1024, 0, context.stream, counts, vocabulary,
         begin, used, uses);
  launch(list_tokens, blocks, kThreads, 0, context.stream, ids, tokens, first, vocabulary, begin,
         filled, list);
  with_real(call[1].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(add_rows<T>, std::min(tokens, vocabulary), row_threads(h, 1), 0, context.stream, list,
           ordered, begin, counts, used, uses, data<const T>(call[1]), any_real(call[2]), h);
    if (!call[3].defined()) return;
    const int64_t elements = call[3].elements();
    launch(add_positions<T>, blocks_for(elements, kThreads, most_blocks(context)), kThreads, 0,
           context.stream, data<const T>(call[1]), any_real(call[3]), tokens * h, elements);
  });
}

}  // namespace moetwin::cuda_ops
