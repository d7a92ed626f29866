#include "backends/sim/cost/roofline.h"

#include <algorithm>

#include "backends/sim/cost/attention.h"
#include "backends/sim/cost/tiles.h"

namespace moetwin {

FlopPerSecond peak(const GpuProfile& gpu, KernelKind kind, DType dtype) {
  if (dtype == DType::i32 || dtype == DType::i64) dtype = DType::f32;
  if (kind == KernelKind::gemm || kind == KernelKind::grouped_gemm || kind == KernelKind::attention)
    return gpu.matmul_peak[static_cast<size_t>(dtype)];
  // 16-bit values are widened before element-wise arithmetic, which runs at the fp32 rate.
  return dtype == DType::f64 ? gpu.vector_peak_fp64 : gpu.vector_peak;
}

Seconds cost(const KernelWork& work, const GpuProfile& gpu) {
  if (has_tiles(work, gpu))
    return work.fp8 ? tiled_cost(work, gpu.fp8_tiles.value_or(*gpu.tiles), gpu.fp8_peak,
                                 gpu.memory_bandwidth)
                    : tiled_cost(work, *gpu.tiles, peak(gpu, work.kind, work.dtype),
                                 gpu.memory_bandwidth);
  if (work.kind == KernelKind::attention)
    if (const auto& rate = gpu.attention[static_cast<size_t>(work.attention)])
      return attention_cost(work, *rate, gpu);
  const auto kind = static_cast<size_t>(work.kind);
  const Seconds arithmetic =
      Flop(work.flop) /
      FlopPerSecond((work.fp8 ? gpu.fp8_peak : peak(gpu, work.kind, work.dtype)).value *
                    gpu.compute_efficiency[kind]);
  const Seconds memory = Bytes(work.bytes) / BytesPerSecond(gpu.memory_bandwidth.value *
                                                            gpu.bandwidth_efficiency[kind]);
  return std::max(arithmetic, memory) + gpu.kernel_seconds;
}

Seconds copy_cost(Bytes bytes, const LinkProfile& pcie) {
  return pcie.latency + bytes / pcie.effective();
}

}  // namespace moetwin
