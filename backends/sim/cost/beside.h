#pragma once
// What a collective takes from kernels that run beside it on the same GPU: multiprocessors from
// matrix products and attention, bandwidth of the memory from others.

#include "backends/sim/cluster/profile.h"
#include "core/device/op.h"

namespace moetwin {

/// Time that kernels take more, as a share of theirs.
struct Beside {
  double products = 0, others = 0;
  double of(float share_of_products) const {
    return share_of_products * products + (1 - share_of_products) * others;
  }
};

/// Whether kernels of a kind wait for multiprocessors rather than for memory.
inline bool is_product(KernelKind kind) {
  return kind == KernelKind::gemm || kind == KernelKind::grouped_gemm ||
         kind == KernelKind::attention;
}

/// `pair`: a send or a receive. `sent`: bytes by this GPU in `seconds`. Nothing where the profile
/// does not say what is taken (gpu.communication_multiprocessors).
Beside beside(const GpuProfile& gpu, bool pair, double sent, double seconds);

/// Seconds by which work in [start, end) ends later beside something in [from, to) that makes it
/// take `more` of its time more.
double slowed(double start, double end, double from, double to, double more);

}  // namespace moetwin
