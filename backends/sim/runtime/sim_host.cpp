// The host's side of a modelled GPU: what launches and a framework's passes cost it, and how far it
// may run ahead.

#include <algorithm>
#include <string_view>
#include <utility>

#include "backends/sim/cost/framework.h"
#include "backends/sim/cost/roofline.h"
#include "backends/sim/runtime/sim_backend.h"

namespace moetwin {

void SimBackend::busy(double seconds, Activity activity) {
  if (seconds <= 0) return;
  Interval interval;
  interval.start = host_;
  host_ += seconds;
  interval.end = host_;
  interval.activity = activity;
  interval.phase = phase_;
  interval.stream = -1;
  interval.order = order_;
  host_log_.add(interval, detailed_);
}

void SimBackend::begin_pass() {
  if (!std::exchange(pass_begins_, false)) return;
  if (passes_wait_) synchronize({0});  // compute is the first stream that a program asks for
  busy(pass_host_seconds_, Activity::host);
}

QueueItem SimBackend::begin(const PricedLaunch& priced) {
  const double overhead = phase_ == Phase::backward ? backward_host_seconds_ : kernel_host_seconds_;
  QueueItem item;
  item.name = priced.name;
  item.phase = phase_;
  item.order = ++order_;
  item.launched = host_ + priced.host_seconds + overhead;
  item.bytes = priced.bytes;
  double products = 0;
  double at = host_ + priced.host_seconds;
  const double factor = slowness_ * correction(item);
  for (const PricedKernel& kernel : priced.kernels) {
    at += overhead;
    const double seconds = kernel.seconds * factor;
    item.seconds += seconds;
    if (kernel.product) products += seconds;
    if (kernel.gemm) item.gemm += static_cast<float>(seconds);
    item.host_bound = std::max(item.host_bound, at) + seconds;
  }
  item.member = priced.kernels.empty() ? 0 : 1;
  if (item.seconds > 0) item.products = static_cast<float>(products / item.seconds);
  busy(at - host_, Activity::host);
  host_ = at;
  return item;
}

void SimBackend::make_room(int32_t stream) {
  StreamQueue& q = streams_[static_cast<size_t>(stream)];
  const int64_t number = q.launched - kRunAhead;
  if (number >= 0) {
    if (q.resolved <= number) wait_for(stream, number + 1);
    StreamQueue& now = streams_[static_cast<size_t>(stream)];
    host_ = std::max(host_, now.ends[static_cast<size_t>(number % kRunAhead)]);
  }
}

void SimBackend::host_work(double seconds, Activity activity) { busy(seconds, activity); }

void SimBackend::phase(Phase phase, const char* label) {
  // Recompute is part of a backward.
  if (phase_ == Phase::other && (phase == Phase::forward || phase == Phase::backward) &&
      std::string_view(label) != kResumed)
    pass_begins_ = true;
  phase_ = phase;
}

void SimBackend::copy_gathered(int64_t bytes) {
  const KernelWork work = copy_of_gathered(bytes, simulation_.settings().compute_dtype);
  const PricedKernel kernel{cost(work, gpu_).value};
  PricedLaunch priced;
  priced.name = "copy";
  priced.bytes = 2 * bytes;
  priced.kernels = {&kernel, 1};
  launch(priced, {0});
}

}  // namespace moetwin
