// bias_grad, grouped_bias_grad: column sums of groups of rows, in two passes of fixed order; and
// the second pass itself, for other ops.

#include "backends/cuda/ops/host.h"
#include "backends/cuda/ops/norm_row.cuh"
#include "backends/cuda/ops/upload.h"

namespace moetwin::cuda_ops {
namespace {

constexpr int kWarps = kThreads / 32;
constexpr int64_t kRowsPerPart = 256;

/// Sums the columns of one part of a group's rows: lane and step say which columns, the warp which
/// rows. Grid: parts x column tiles. part_begin [groups + 1]: parts of the groups before.
template <class T, int step>
__global__ void part_sums(const T* x, const int64_t* row_begin, const int64_t* part_begin,
                          int64_t groups, int64_t tiles, int64_t n, float* sums) {
  float* of_warp = reinterpret_cast<float*>(shared_memory());
  const int64_t part = block_id() / tiles, tile = block_id() % tiles;
  const int64_t group = find_group(part_begin, groups, part);
  const int64_t first = row_begin[group] + (part - part_begin[group]) * kRowsPerPart;
  const int64_t last = first + kRowsPerPart, end = row_begin[group + 1];
  const int64_t col = (tile * 32 + lane_id()) * step;
  float sum[step];
#pragma unroll
  for (int j = 0; j < step; ++j) sum[j] = 0;
  if (col < n)
    for (int64_t r = first + warp_id(); r < (last < end ? last : end); r += kWarps) {
      float v[step];
      load(x + r * n + col, v);
#pragma unroll
      for (int j = 0; j < step; ++j) sum[j] += v[j];
    }
#pragma unroll
  for (int j = 0; j < step; ++j) of_warp[(warp_id() * 32 + lane_id()) * step + j] = sum[j];
  sync_block();
  for (int i = thread_id(); i < 32 * step; i += kThreads) {
    const int64_t at = tile * 32 * step + i;
    if (at >= n) continue;
    float total = 0;
    for (int w = 0; w < kWarps; ++w) total += of_warp[w * 32 * step + i];
    sums[part * n + at] = total;
  }
}

/// d[g][i] += sums of the parts of group g: lanes take columns, warps a run of parts each.
__global__ void join_parts(const float* sums, const int64_t* part_begin, int64_t parts,
                           int64_t tiles, int64_t width, int64_t offset, int64_t n, AnyReal d) {
  float* of_warp = reinterpret_cast<float*>(shared_memory());
  const int64_t group = block_id() / tiles, col = block_id() % tiles * 32 + lane_id();
  const int64_t begin = part_begin ? part_begin[group] : 0;
  const int64_t end = part_begin ? part_begin[group + 1] : parts;
  const int64_t run = (end - begin + kWarps - 1) / kWarps, first = begin + warp_id() * run;
  float sum = 0;
  if (col < n)
    for (int64_t p = first; p < (first + run < end ? first + run : end); ++p)
      sum += sums[p * width + offset + col];
  of_warp[thread_id()] = sum;
  sync_block();
  if (warp_id() != 0 || col >= n || begin == end) return;
  float total = 0;
  for (int w = 0; w < kWarps; ++w) total += of_warp[w * 32 + lane_id()];
  d.set(group * n + col, d.get(group * n + col) + total);
}
constexpr int64_t kJoinShared = kThreads * static_cast<int64_t>(sizeof(float));

void sum_groups(CudaLaunchContext& context, const Tensor& x, const std::vector<int64_t>& rows,
                const Tensor& d) {
  const int64_t n = x.shape[1], groups = static_cast<int64_t>(rows.size());
  std::vector<int64_t> words;  // row_begin, then part_begin
  for (int64_t per_part : {int64_t{1}, kRowsPerPart}) {
    words.push_back(0);
    for (int64_t r : rows) words.push_back(words.back() + (r + per_part - 1) / per_part);
  }
  const int64_t parts = words.back();
  if (parts == 0 || n == 0) return;
  const int64_t* row_begin = upload(context, words);
  const int64_t* part_begin = row_begin + groups + 1;
  float* sums = take<float>(context, parts * n);
  const bool packed = n % kPacked == 0 && aligned(x.data(), 16);
  const int step = packed ? kPacked : 1;
  const int64_t tiles = (n + 32 * step - 1) / (32 * step);
  with_real(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(packed ? part_sums<T, kPacked> : part_sums<T, 1>, parts * tiles, kThreads,
           kThreads * step * static_cast<int64_t>(sizeof(float)), context.stream, data<const T>(x),
           row_begin, part_begin, groups, tiles, n, sums);
  });
  const int64_t join_tiles = (n + 31) / 32;
  launch(join_parts, groups * join_tiles, kThreads, kJoinShared, context.stream, sums, part_begin,
         parts, join_tiles, n, int64_t{0}, n, any_real(d));
}

}  // namespace

void add_sums(CudaLaunchContext& context, const float* sums, int64_t parts, int64_t width,
              int64_t offset, int64_t n, AnyReal d) {
  const int64_t tiles = (n + 31) / 32;
  launch(join_parts, tiles, kThreads, kJoinShared, context.stream, sums, nullptr, parts, tiles,
         width, offset, n, d);
}

void bias_grad(const OpCall& call, CudaLaunchContext& context) {
  sum_groups(context, call[0], {call[0].shape[0]}, call[1]);
}
void grouped_bias_grad(const OpCall& call, CudaLaunchContext& context) {
  sum_groups(context, call[0], *call.sizes, call[1]);
}

}  // namespace moetwin::cuda_ops
