#pragma once
// Small programs on the modelled machine: a toy profile with round numbers, an op that takes a
// given time and one that does a little arithmetic.

#include <string>
#include <vector>

#include "backends/sim/cluster.h"
#include "core/device/allocator.h"
#include "core/device/backend.h"
#include "core/scenario/scenario.h"
#include "tests/support/in_child.h"

namespace moetwin::test {

/// toy-8gpu: 1 us a launch, 100 GB/s memory, NVLink 10 GB/s and 1 us a step, NIC 1 GB/s and 10 us.
ClusterProfile toy();
/// The same without launch overhead and latencies.
ClusterProfile ideal();
Scenario toy_scenario(int64_t world);

/// y is read and written; takes `seconds` on the toy's GPU (in `kernels` kernels of equal length).
struct SpinAttr {
  double seconds = 0;
  int64_t kernels = 1;
  KernelKind kind = KernelKind::elementwise;
};
OpCall spin(const Tensor& y, double seconds, int64_t kernels = 1,
            KernelKind kind = KernelKind::elementwise);
/// y = alpha * y + beta, f32.
OpCall axpb(const Tensor& y, double alpha, double beta);
/// y[i] = i + value, any floating type.
OpCall count_up(const Tensor& y, double value);
/// count_up, a hundredth of a second of wall time later.
OpCall count_up_late(const Tensor& y, double value);
/// Throws Error(non_finite, message) when its arithmetic runs.
OpCall explode(const Tensor& y, const char* message);

struct Case {
  Scenario scenario = toy_scenario(1);
  ClusterProfile profile = toy();
  int threads = 1;
  std::string context_factory;
  std::function<std::unique_ptr<Backend>(Backend&)> wrap;

  /// Runs the program on every rank. In a child only: one simulation per process.
  void run(const std::function<void(Backend&)>& program) const;
  /// Runs it in a child; what the program writes into its argument, by rank.
  std::vector<double> numbers(const std::function<double(Backend&)>& program) const;
};

/// The tensor's values, after the work on the stream.
std::vector<float> values_of(Backend& device, const Tensor& tensor, Stream stream);

Group all_ranks(const Backend& device);

}  // namespace moetwin::test
