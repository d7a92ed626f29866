#include "backends/sim/cost/attention.h"

#include <algorithm>
#include <cmath>

#include "backends/sim/cost/roofline.h"

namespace moetwin {

Seconds attention_cost(const KernelWork& work, const AttentionRate& rate, const GpuProfile& gpu,
                       double clock) {
  constexpr int64_t kQueries = 128;               // of a block
  if (work.flop <= 0) return gpu.kernel_seconds;  // of no sequence
  const double s = static_cast<double>(work.n);
  const double keys = work.causal ? (s + 1) / 2 : s;
  const double steps =
      std::min(1.0, std::log2(static_cast<double>(std::max<int64_t>(work.k, 1)) / 64));
  const double efficiency =
      rate.efficiency_64 * std::pow(rate.efficiency_128 / rate.efficiency_64, steps);
  const double ramp = rate.ramp + (work.causal ? rate.diagonal : 0);
  double seconds =
      work.flop / (clock * peak(gpu, work.kind, work.dtype).value * efficiency) * (1 + ramp / keys);
  if (gpu.tiles) {
    const auto blocks = static_cast<double>(work.batch * ((work.m + kQueries - 1) / kQueries));
    seconds *= std::max(1.0, static_cast<double>(gpu.tiles->multiprocessors) / blocks);
  }
  const double memory =
      work.bytes / (gpu.memory_bandwidth.value *
                    gpu.bandwidth_efficiency[static_cast<size_t>(KernelKind::attention)]);
  return Seconds(std::max(seconds, memory)) + gpu.kernel_seconds;
}

}  // namespace moetwin
