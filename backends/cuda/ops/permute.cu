// permute, regroup: rows move 16 bytes at a time, a warp per row.

#include "backends/cuda/ops/host.h"
#include "backends/cuda/ops/upload.h"
#include "core/ops/dispatch.h"

namespace moetwin::cuda_ops {
namespace {

constexpr int kWarps = kThreads / 32;
using Wide = Vector<uint32_t, 4>;

/// `words` of a row of type Word.
template <class Word>
__device__ __forceinline__ void copy_row(const Word* from, Word* to, int64_t words) {
#pragma unroll 4
  for (int64_t i = lane_id(); i < words; i += 32) to[i] = from[i];
}

template <class Word>
__global__ void gather_rows(const Word* x, const int32_t* source, Word* y, int64_t rows,
                            int64_t words, int32_t top_k, int64_t slice) {
  const int64_t warps = block_count() * warp_count();
  for (int64_t r = block_id() * warp_count() + warp_id(); r < rows; r += warps) {
    const int32_t from = source[r];
    if (from >= 0) {
      copy_row(x + (from / top_k - slice) * words, y + r * words, words);
    } else {
      for (int64_t i = lane_id(); i < words; i += 32) y[r * words + i] = Word{};
    }
  }
}

/// segments: row_begin [count + 1], then source rows [count], then destination rows [count].
template <class Word>
__global__ void move_rows(const Word* x, Word* y, const int64_t* segments, int64_t count,
                          int64_t rows, int64_t words) {
  const int64_t warps = block_count() * warp_count();
  for (int64_t r = block_id() * warp_count() + warp_id(); r < rows; r += warps) {
    const int64_t s = find_group(segments, count, r), within = r - segments[s];
    const int64_t from = segments[count + 1 + s] + within;
    const int64_t to = segments[2 * count + 1 + s] + within;
    copy_row(x + from * words, y + to * words, words);
  }
}

/// Calls f(Word, words in a row): rows of any real type are whole 16-bit words, and mostly whole
/// packs.
template <class F>
void with_words(const Tensor& x, const Tensor& y, F f) {
  const int64_t bytes = x.shape[1] * dtype_size(x.dtype);
  if (bytes % 16 == 0 && aligned(x.data(), 16) && aligned(y.data(), 16))
    f(TypeTag<Wide>{}, bytes / 16);
  else
    f(TypeTag<uint16_t>{}, bytes / 2);
}

}  // namespace

void permute(const OpCall& call, CudaLaunchContext& context) {
  const auto a = call.get<RangeAttr>();
  with_words(call[0], call[2], [&](auto tag, int64_t words) {
    using Word = typename decltype(tag)::type;
    launch(gather_rows<Word>, blocks_for(a.count, kWarps, most_blocks(context)), kThreads, 0,
           context.stream, data<const Word>(call[0]), data<const int32_t>(call[1]) + a.first,
           data<Word>(call[2]), a.count, words, static_cast<int32_t>(a.top_k), a.slice);
  });
}

void regroup(const OpCall& call, CudaLaunchContext& context) {
  const std::vector<int64_t>& triples = *call.sizes;
  std::vector<int64_t> begin = {0}, from, to;
  for (size_t i = 0; i < triples.size(); i += 3) {
    if (triples[i + 2] == 0) continue;
    from.push_back(triples[i]);
    to.push_back(triples[i + 1]);
    begin.push_back(begin.back() + triples[i + 2]);
  }
  const int64_t rows = begin.back(), count = static_cast<int64_t>(from.size());
  if (rows == 0) return;
  begin.insert(begin.end(), from.begin(), from.end());
  begin.insert(begin.end(), to.begin(), to.end());
  const int64_t* segments = upload(context, begin);
  with_words(call[0], call[1], [&](auto tag, int64_t words) {
    using Word = typename decltype(tag)::type;
    launch(move_rows<Word>, blocks_for(rows, kWarps, most_blocks(context)), kThreads, 0,
           context.stream, data<const Word>(call[0]), data<Word>(call[1]), segments, count, rows,
           words);
  });
}

}  // namespace moetwin::cuda_ops
