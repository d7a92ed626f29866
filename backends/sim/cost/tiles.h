#pragma once
// Seconds of a matrix product, plain or grouped, from how a GPU cuts it: into tiles, one per
// multiprocessor at a time, in waves. What a roofline cannot tell: a product of few tiles leaves
// multiprocessors idle, one of short rows wastes most of each tile, and many small groups fill
// none.

#include <optional>

#include "backends/sim/cluster/profile.h"
#include "core/base/units.h"
#include "core/device/op.h"

namespace moetwin {

/// The shape a library would choose: the fastest of the tiles 256x128 to 64x64, and of plain
/// products with k cut into up to four parts that are summed afterwards.
///
///   tile   = 2 tm tn k / (peak / multiprocessors * efficiency / (1 + edge (1/tm + 1/tn)))
///            + tile_seconds
///   waves  = u + tail (ceil(u) - u),  u = tiles / multiprocessors
///   time   = max(waves * tile, bytes / (memory bandwidth * bandwidth_efficiency)) + fixed_seconds
///
/// The last wave costs less than a whole one since clocks rise and caches are freer when
/// multiprocessors idle: `tail` is the share of their idle time that is lost.
Seconds tiled_cost(const KernelWork& work, const MatmulTiles& tiles, FlopPerSecond peak,
                   BytesPerSecond memory_bandwidth);

/// Whether the model applies: the profile has it and the kernel's shape is known.
bool has_tiles(const KernelWork& work, const GpuProfile& gpu);

}  // namespace moetwin
