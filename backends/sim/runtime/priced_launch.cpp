#include "backends/sim/runtime/priced_launch.h"

#include "backends/sim/cost/beside.h"
#include "backends/sim/cost/framework.h"
#include "backends/sim/cost/roofline.h"

namespace moetwin {

PricedLaunch LaunchPricer::price(const OpCall& call, Phase phase, std::vector<PricedKernel>& into) {
  work_.clear();
  call.op->kernels(call, choice_, work_);
  PricedLaunch priced;
  priced.name = call.op->name;
  priced.host_seconds = host_time_beside(framework_costs(choice_.of), call).value;
  double bytes = 0;
  for (const KernelWork& kernel : work_) {
    bytes += kernel.bytes;
    priced.flop += kernel.flop;
    into.push_back({cost(kernel, gpu_, clock_in(phase, gpu_)).value, is_product(kernel.kind),
                    kernel.kind == KernelKind::gemm});
  }
  priced.bytes = static_cast<int64_t>(bytes);
  return priced;
}

}  // namespace moetwin
