#include "backends/sim/cost/beside.h"

#include <algorithm>

namespace moetwin {

namespace {
/// What a send takes: NCCL's two channels of a pair.
constexpr double kPairMultiprocessors = 2;
/// Bytes through device memory for each that is sent: the user's data is read, what arrives is
/// written to a buffer and read from there (NVIDIA/nccl issue 1428).
constexpr double kMemoryPasses = 3;
constexpr double kMostMemoryShare = 0.75;
}  // namespace

Beside beside(const GpuProfile& gpu, bool pair, double sent, double seconds) {
  if (gpu.communication_multiprocessors == 0 || seconds <= 0) return {};
  const auto all = static_cast<double>(gpu.tiles->multiprocessors);
  const auto taken =
      pair ? kPairMultiprocessors : static_cast<double>(gpu.communication_multiprocessors);
  const double memory =
      std::min(kMostMemoryShare, kMemoryPasses * sent / seconds / gpu.memory_bandwidth.value);
  return {all / (all - taken) - 1, 1 / (1 - memory) - 1};
}

double slowed(double start, double end, double from, double to, double more) {
  const double begin = std::max(start, from), left = to - begin;
  if (left <= 0 || end <= begin) return 0;
  return more * std::min(end - begin, left / (1 + more));
}

}  // namespace moetwin
