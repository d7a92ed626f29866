#include "backends/sim/cost/tiles.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace moetwin {
namespace {

struct TileShape {
  int64_t rows, columns;
};
constexpr std::array<TileShape, 8> kShapes = {
    {{256, 128}, {128, 256}, {128, 128}, {256, 64}, {64, 256}, {128, 64}, {64, 128}, {64, 64}}};
constexpr int64_t kMostSplits = 4;
constexpr int64_t kLeastSplitDepth = 512;  ///< k of a part: shorter ones cost more than they save
constexpr int64_t kStep = 32;              ///< k goes through a tile in steps of this many

int64_t up(int64_t n, int64_t step) { return (n + step - 1) / step; }

/// Tile rows of all groups or products.
int64_t row_tiles(const KernelWork& work, int64_t rows) {
  if (work.kind != KernelKind::grouped_gemm || !work.group_rows)
    return up(work.m, rows) * work.batch;
  int64_t sum = 0;
  for (const int64_t group : *work.group_rows) sum += up(group, rows);
  return sum;
}

}  // namespace

bool has_tiles(const KernelWork& work, const GpuProfile& gpu) {
  return gpu.tiles && (work.kind == KernelKind::gemm || work.kind == KernelKind::grouped_gemm) &&
         work.m > 0 && work.n > 0 && work.k > 0;
}

Seconds tiled_cost(const KernelWork& work, const MatmulTiles& tiles, FlopPerSecond peak,
                   BytesPerSecond memory_bandwidth) {
  const double processors = static_cast<double>(tiles.multiprocessors);
  const double whole = peak.value * tiles.efficiency / processors;
  const double memory = work.bytes / (memory_bandwidth.value * tiles.bandwidth_efficiency);
  const bool plain = work.kind == KernelKind::gemm;
  // Partial sums of a cut k are written and read once each, in fp32.
  const double partial = 8.0 * static_cast<double>(work.m) * static_cast<double>(work.n) *
                         static_cast<double>(work.batch) / (2 * memory_bandwidth.value);
  double best = std::numeric_limits<double>::infinity();
  for (const TileShape& shape : kShapes) {
    const double rows = static_cast<double>(shape.rows),
                 columns = static_cast<double>(shape.columns);
    const double rate = whole / (1 + tiles.edge * (1 / rows + 1 / columns));
    const int64_t count = row_tiles(work, shape.rows) * up(work.n, shape.columns);
    for (int64_t splits = 1; splits <= (plain ? kMostSplits : 1); ++splits) {
      if (splits > 1 &&
          (work.k / splits < kLeastSplitDepth || count * splits > 2 * tiles.multiprocessors))
        break;
      const double depth = static_cast<double>(up(up(work.k, splits), kStep) * kStep);
      const double used = static_cast<double>(count * splits) / processors;
      const double waves = used + tiles.tail * (std::ceil(used) - used);
      double seconds =
          std::max(waves * (2 * rows * columns * depth / rate + tiles.tile_seconds.value), memory);
      if (splits > 1) seconds += tiles.split_seconds.value + static_cast<double>(splits) * partial;
      best = std::min(best, seconds);
    }
  }
  return Seconds(best) + tiles.fixed_seconds;
}

}  // namespace moetwin
