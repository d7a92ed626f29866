#include "backends/sim/calibration/measure.h"

#include <fmt/format.h>

#include <algorithm>

#include "backends/sim/calibration/bench.h"
#include "core/base/philox.h"
#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"

namespace moetwin {

MeasureSizes sizes_for(const DeviceProperties& properties, DType dtype) {
  MeasureSizes sizes;
  sizes.dtype = dtype;
  // AdamW's four arrays of fp32 are the largest working set.
  while (sizes.elements > 1 << 20 && sizes.elements * 4 * 4 > properties.memory_bytes / 4)
    sizes.elements /= 2;
  while (sizes.most_message > 1 << 20 && sizes.most_message * 3 > properties.memory_bytes / 4)
    sizes.most_message /= 2;
  return sizes;
}

MeasureSizes tiny_sizes() {
  MeasureSizes sizes;
  sizes.tokens = 64, sizes.hidden = 32, sizes.expert_width = 64;
  sizes.few_experts = 2, sizes.many_experts = 4, sizes.small_expert_width = 32;
  sizes.head_dim = 16, sizes.sequence = 32;
  sizes.vocabulary = 64;
  sizes.elements = 1 << 12;
  sizes.least_message = 1 << 8, sizes.most_message = 1 << 14;
  sizes.least_copy = 1 << 10, sizes.most_copy = 1 << 16;
  sizes.launches = 2, sizes.rounds = 1;
  return sizes;
}

Bench::Bench(Backend& device, const MeasureSizes& sizes, Measurements& into)
    : device_(device),
      sizes_(sizes),
      into_(into),
      memory_(device, false),
      stream_(device.stream("compute")) {
  load_a_ = drawn({sizes.tokens, sizes.hidden}, sizes.dtype);
  load_b_ = drawn({sizes.hidden, sizes.expert_width}, sizes.dtype);
  load_c_ = empty({sizes.tokens, sizes.expert_width}, sizes.dtype);
}

Tensor Bench::empty(const Shape& shape, DType dtype, MemoryClass memory_class) {
  return memory_.allocate(shape, dtype, memory_class, "measured", stream_);
}

Tensor Bench::drawn(const Shape& shape, DType dtype) {
  const Tensor tensor = empty(shape, dtype);
  InitAttr attr;
  attr.key = philox_key(1, Purpose::init, draws_++, 0);
  attr.global[2] = attr.local[2] = shape.elements();
  device_.launch(init_normal(tensor, attr), stream_);
  return tensor;
}

double Bench::seconds_in_phase(const Profile& profile) {
  double seconds = 0;
  for (const Interval& i : profile.intervals)
    if (i.stream >= 0 && i.phase == kMeasured) seconds += i.end - i.start;
  return seconds;
}

double Bench::median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

void Bench::launch_load() { device_.launch(gemm(load_a_, load_b_, {}, load_c_, {}, {}), stream_); }

double Bench::device_seconds(const OpCall& call) {
  device_.launch(call, stream_);  // plans are made and scratch memory is found once
  device_.synchronize(stream_);
  device_.take_profile(false);
  std::vector<double> seconds;
  for (int round = 0; round < sizes_.rounds; ++round) {
    launch_load();
    device_.phase(kMeasured, "measured");
    for (int i = 0; i < sizes_.launches; ++i) device_.launch(call, stream_);
    device_.phase(Phase::other, "");
    device_.synchronize(stream_);
    seconds.push_back(seconds_in_phase(device_.take_profile(false)) / sizes_.launches);
  }
  return median(seconds);
}

void Bench::time(const std::string& what, const OpCall& call) {
  const double seconds = device_seconds(call);
  if (!is_first() || seconds <= 0) return;
  KernelMeasurement measured;
  measured.what = what;
  measured.seconds = seconds;
  call.op->kernels(call, KernelClass::moetwin, measured.kernels);
  for (KernelWork& k : measured.kernels) {
    if (!k.group_rows) continue;
    if (!measured.group_rows)
      measured.group_rows = std::make_shared<const std::vector<int64_t>>(*k.group_rows);
    k.group_rows = measured.group_rows.get();
  }
  if (!measured.kernels.empty()) into_.kernels.push_back(std::move(measured));
}

void measure(Backend& device, const MeasureSizes& sizes, Measurements& into) {
  if (device.properties().rank == 0) {
    const DeviceProperties& p = device.properties();
    into.device_name = p.name;
    into.memory_bytes = p.memory_bytes;
    into.gpus_per_node = p.gpus_per_node;
    into.dtype = sizes.dtype;
    into.peak_flop_per_second = p.peak_flop_per_second;
    into.peak_source = p.peak_source;
  }
  {
    Bench bench(device, sizes, into);
    measure_products(bench);
  }
  {
    Bench bench(device, sizes, into);
    measure_memory_ops(bench);
    measure_moe_ops(bench);
  }
  Bench bench(device, sizes, into);
  measure_launches(bench);
  measure_copies(bench);
  measure_collectives(bench);
}

}  // namespace moetwin
