#include "backends/sim/cost/roofline.h"

#include <algorithm>
#include <numeric>

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

namespace {

/// Batched 16-bit products whose rows do not begin at multiples of 16 bytes, as of attention heads
/// of 108 or 150 elements, are no work of tensor cores: elements a load (4, 2 or 1); 0: they are.
int64_t misaligned(const KernelWork& work) {
  constexpr int64_t kAligned = 8;
  if (work.kind != KernelKind::gemm || work.batch <= 1 || dtype_size(work.dtype) != 2) return 0;
  const int64_t both = std::gcd(std::gcd(work.n, work.k), kAligned);
  return both < kAligned ? both : 0;
}

/// Of the vector peak, for each element a load. DT-BLOOMPRE, all rows: such products run at 6 and
/// 13 TFLOP/s with heads of 150 and 108 elements.
constexpr double kMisalignedShare = 0.17;

}  // namespace

Seconds cost(const KernelWork& work, const GpuProfile& gpu, double clock) {
  if (const int64_t elements = misaligned(work); elements > 0)
    return std::max(Flop(work.flop) / FlopPerSecond(kMisalignedShare * gpu.vector_peak.value *
                                                    static_cast<double>(elements)),
                    Bytes(work.bytes) / gpu.memory_bandwidth) +
           gpu.kernel_seconds;
  if (has_tiles(work, gpu))
    return work.fp8 ? tiled_cost(work, gpu.fp8_tiles.value_or(*gpu.tiles),
                                 FlopPerSecond(clock * gpu.fp8_peak.value), gpu.memory_bandwidth)
                    : tiled_cost(work, *gpu.tiles,
                                 FlopPerSecond(clock * peak(gpu, work.kind, work.dtype).value),
                                 gpu.memory_bandwidth);
  if (work.kind == KernelKind::attention)
    if (const auto& rate = gpu.attention[static_cast<size_t>(work.attention)])
      return attention_cost(work, *rate, gpu, clock);
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
