// dispatch_plan: a stable counting sort by expert. A warp takes a tile of assignments and counts
// them by expert in order; counts are scanned over tiles and experts; the warp goes over its tile
// again and places each assignment. Under a capacity by probability, which assignments are kept is
// found first, from the same sort over the whole micro-batch and a radix selection per expert.

#include "backends/cuda/ops/host.h"
#include "backends/cuda/ops/router_weights.cuh"
#include "core/ops/dispatch.h"

namespace moetwin::cuda_ops {
namespace {

constexpr int64_t kTileSize = 512;

struct Plan {
  int64_t assignments, chunk, chunks, tiles,
      experts;       ///< chunk: assignments of one; tiles: per chunk
  int64_t capacity;  ///< -1: none

  __host__ __device__ int64_t rows() const { return chunks * experts; }
  /// Of expert e in chunk c.
  __device__ int64_t at(int64_t c, int64_t e) const { return e * chunks + c; }
  __device__ int64_t chunk_begin(int64_t c) const {
    return c * chunk < assignments ? c * chunk : assignments;
  }
};

/// The expert of assignment i; -1: none, beyond the end, or not kept.
__device__ __forceinline__ int expert_of(const int32_t* ids, const uint8_t* keep, int64_t i,
                                         int64_t end) {
  return i < end && (!keep || keep[i]) ? ids[i] : -1;
}

/// tile_counts[tile][e]: assignments of a tile to expert e. One warp a block.
__global__ void count_tiles(const int32_t* ids, const uint8_t* keep, Plan p, int* tile_counts) {
  int* counts = reinterpret_cast<int*>(shared_memory());
  for (int64_t e = lane_id(); e < p.experts; e += 32) counts[e] = 0;
  sync_warp();
  const int64_t c = block_id() / p.tiles, end = p.chunk_begin(c + 1);
  const int64_t first = p.chunk_begin(c) + block_id() % p.tiles * kTileSize;
  for (int64_t i = first; i < first + kTileSize && i < end; i += 32) {
    const int e = expert_of(ids, keep, i + lane_id(), end);
    if (e >= 0) atomic_add(counts + e, 1);
  }
  sync_warp();
  for (int64_t e = lane_id(); e < p.experts; e += 32)
    tile_counts[block_id() * p.experts + e] = counts[e];
}

/// Counts of tiles become counts of the tiles before, in each chunk; rows(c, e) = of the whole
/// chunk.
__global__ void scan_tiles(Plan p, int* tile_counts, int64_t* rows) {
  for (int64_t i = grid_thread(); i < p.rows(); i += grid_threads()) {
    const int64_t c = i / p.experts, e = i % p.experts;  // neighbours read neighbours
    int before = 0;
    for (int64_t tile = c * p.tiles; tile < (c + 1) * p.tiles; ++tile) {
      int* here = tile_counts + tile * p.experts + e;
      const int mine = *here;
      *here = before;
      before += mine;
    }
    rows[p.at(c, e)] = before;
  }
}

/// One block: rows(c, e) become those kept under the capacity, begin(c, e) the first row of each,
/// and the mark goes from counts[E] to the end of `kept`. `kept` may be rows.
__global__ void scan_experts(Plan p, int64_t* rows, int64_t* begin, int64_t* kept,
                             const int64_t* mark) {
  for (int64_t c = 0; c < p.chunks; ++c) {
    int placed = 0;
    for (int64_t first = 0; first < p.experts; first += thread_count()) {
      const int64_t e = first + thread_id();
      int64_t mine = e < p.experts ? rows[p.at(c, e)] : 0;
      if (p.capacity >= 0 && e < p.experts) {
        int64_t before = 0;
        for (int64_t lower = 0; lower < c; ++lower) before += kept[p.at(lower, e)];
        const int64_t left = p.capacity - before;
        mine = mine < left ? mine : left;
      }
      int total = 0;
      const int at = block_exclusive_sum(static_cast<int>(mine), total);
      if (e < p.experts) {
        begin[p.at(c, e)] = p.chunk_begin(c) + placed + at;
        kept[p.at(c, e)] = mine;
      }
      placed += total;
    }
  }
  if (thread_id() == 0 && mark) kept[p.rows()] = *mark;
}

/// position and source (either may be null) of a tile. One warp a block.
__global__ void place(const int32_t* ids, const uint8_t* keep, Plan p, const int* tiles_before,
                      const int64_t* begin, const int64_t* kept, int32_t* position,
                      int32_t* source) {
  int* next = reinterpret_cast<int*>(shared_memory());
  for (int64_t e = lane_id(); e < p.experts; e += 32)
    next[e] = tiles_before[block_id() * p.experts + e];
  sync_warp();
  const int64_t c = block_id() / p.tiles, end = p.chunk_begin(c + 1);
  const int64_t first = p.chunk_begin(c) + block_id() % p.tiles * kTileSize;
  for (int64_t block = first; block < first + kTileSize && block < end; block += 32) {
    const int64_t i = block + lane_id();
    const int e = expert_of(ids, keep, i, end);
    const uint32_t same = warp_match(e);
    const int lower = count_bits(same & ((uint32_t{1} << lane_id()) - 1));
    const int rank = e >= 0 ? next[e] + lower : 0;
    sync_warp();
    if (e >= 0 && lowest_bit(same) == lane_id()) next[e] += count_bits(same);
    sync_warp();
    const bool placed = e >= 0 && rank < kept[p.at(c, e)];
    const int64_t row = placed ? begin[p.at(c, e)] + rank : -1;
    if (position && i < end) position[i] = static_cast<int32_t>(row);
    if (source && placed) source[row] = static_cast<int32_t>(i);
  }
}

/// A block per expert: keep[i] = 1 for the `capacity` assignments of highest weight (ties: lower
/// number). `list`: assignments by expert, ascending; those of e begin at begin[e].
__global__ void keep_heaviest(const int32_t* list, const int64_t* begin, const int64_t* rows,
                              AnyReal weights, int64_t capacity, uint8_t* keep) {
  int* histogram = reinterpret_cast<int*>(shared_memory());
  const int64_t count = rows[block_id()];
  const int32_t* mine = list + begin[block_id()];
  const auto key = [&](int64_t i) { return order_key(weights.get(mine[i])); };
  // Byte by byte from the top: the key of the last one kept.
  uint32_t prefix = 0, mask = 0;
  int64_t wanted = capacity < count ? capacity : count;
  for (int shift = 24; shift >= 0 && count > capacity && capacity > 0; shift -= 8) {
    for (int b = thread_id(); b < 256; b += thread_count()) histogram[b] = 0;
    sync_block();
    for (int64_t i = thread_id(); i < count; i += thread_count())
      if ((key(i) & mask) == prefix) atomic_add(histogram + (key(i) >> shift & 0xff), 1);
    sync_block();
    int byte = 255;
    for (; byte > 0 && histogram[byte] < wanted; --byte) wanted -= histogram[byte];
    sync_block();
    prefix |= static_cast<uint32_t>(byte) << shift;
    mask |= 0xffu << shift;
  }
  // All keys above it are kept, and the first `wanted` that equal it.
  const bool all = count <= capacity;
  int64_t equal_before = 0;
  for (int64_t first = 0; first < count; first += thread_count()) {
    const int64_t i = first + thread_id();
    const uint32_t k = i < count ? key(i) : 0;
    const bool equal = i < count && !all && k == prefix;
    int total = 0;
    const int at = block_exclusive_sum(equal ? 1 : 0, total);
    if (i < count)
      keep[mine[i]] =
          all || (capacity > 0 && (k > prefix || (equal && equal_before + at < wanted)));
    equal_before += total;
  }
}

Plan plan_of(int64_t tokens, const PlanAttr& a, int64_t chunks, int64_t capacity) {
  Plan p;
  p.assignments = tokens * a.top_k;
  p.chunk = (tokens + chunks - 1) / chunks * a.top_k;
  p.chunks = chunks;
  p.tiles = (p.chunk + kTileSize - 1) / kTileSize;
  p.experts = a.experts;
  p.capacity = capacity;
  return p;
}

void sort_by_expert(CudaLaunchContext& context, const Plan& p, const int32_t* ids,
                    const uint8_t* keep, int64_t* begin, int64_t* kept, const int64_t* mark,
                    int32_t* position, int32_t* source) {
  const int64_t blocks = p.chunks * p.tiles;
  const int64_t shared = p.experts * static_cast<int64_t>(sizeof(int));
  int* tile_counts = take<int>(context, blocks * p.experts);
  launch(count_tiles, blocks, 32, shared, context.stream, ids, keep, p, tile_counts);
  launch(scan_tiles, blocks_for(p.rows(), kThreads, most_blocks(context)), kThreads, 0,
         context.stream, p, tile_counts, kept);
  launch(scan_experts, 1, row_threads(p.experts, 1), 0, context.stream, p, kept, begin, kept, mark);
  launch(place, blocks, 32, shared, context.stream, ids, keep, p, tile_counts, begin, kept,
         position, source);
}

}  // namespace

void dispatch_plan(const OpCall& call, CudaLaunchContext& context) {
  const auto a = call.get<PlanAttr>();
  const int64_t tokens = call[0].shape[0], assignments = tokens * a.top_k;
  const int32_t* ids = data<const int32_t>(call[0]);
  if (a.experts > 40000)
    throw Error(ErrorClass::capacity, std::to_string(a.experts) +
                                          " experts do not fit the shared memory of a sort; "
                                          "legal: up to 40,000");
  uint8_t* keep = nullptr;
  if (a.capacity >= 0 && a.by_probability && assignments > 0) {
    const Plan whole = plan_of(tokens, a, 1, -1);
    int32_t* list = take<int32_t>(context, assignments);
    int64_t *begin = take<int64_t>(context, a.experts),
            *rows = take<int64_t>(context, a.experts + 1);
    keep = take<uint8_t>(context, assignments);
    clear(context, keep, assignments);
    sort_by_expert(context, whole, ids, nullptr, begin, rows, nullptr, nullptr, list);
    launch(keep_heaviest, a.experts, kThreads, 256 * static_cast<int64_t>(sizeof(int)),
           context.stream, list, begin, rows, any_real(call[1]), a.capacity, keep);
  }
  int32_t* source = data<int32_t>(call[4]);
  if (assignments > 0)
    check_cuda(cudaMemsetAsync(source, 0xff, static_cast<size_t>(call[4].bytes()), context.stream),
               "clearing memory");
  const Plan p = plan_of(tokens, a, a.chunks, a.by_probability ? -1 : a.capacity);
  sort_by_expert(context, p, ids, keep, take<int64_t>(context, p.rows()), data<int64_t>(call[5]),
                 data<const int64_t>(call[2]) + a.experts, data<int32_t>(call[3]), source);
}

}  // namespace moetwin::cuda_ops
