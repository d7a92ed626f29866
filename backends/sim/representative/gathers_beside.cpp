#include "backends/sim/representative/gathers_beside.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "backends/sim/cost/beside.h"

namespace moetwin {

double gained_beside_forward(const ComposeSetup& step, const GpuProfile& gpu) {
  double least = std::numeric_limits<double>::infinity();
  for (const StageSetup& stage : step.stages) {
    if (!stage.record) return 0;
    double seconds = 0, first = 0, bytes = 0;
    for (const Sent& sent : stage.record->update.sent) {
      if (std::strcmp(sent.purpose, "parameters") != 0 || sent.calls <= 0) continue;
      seconds += sent.seconds;
      bytes += sent.bytes;
      first = std::max(first, sent.seconds / sent.calls);
    }
    double forward = 0;
    for (const ChunkPasses* chunk : stage.chunks)
      for (const PlacedBlock& block : chunk->blocks)
        forward += block.passes->forward.whole.steady_seconds;
    const double more = beside(gpu, false, bytes, seconds).products;
    least = std::min(least, std::min(seconds - first, forward) / (1 + more));
  }
  return std::max(0.0, least);
}

}  // namespace moetwin
