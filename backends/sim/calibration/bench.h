#pragma once
// Timing of ops and collectives on one rank. Only backends/sim/calibration includes this.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/sim/calibration/measure.h"
#include "core/device/allocator.h"

namespace moetwin {

inline HostSizes shared(std::vector<int64_t> sizes) {
  return std::make_shared<const std::vector<int64_t>>(std::move(sizes));
}

class Bench {
 public:
  Bench(Backend& device, const MeasureSizes& sizes, Measurements& into);

  Backend& device() { return device_; }
  const MeasureSizes& sizes() const { return sizes_; }
  bool numerics() const { return device_.properties().numerics; }
  bool is_first() const { return device_.properties().rank == 0; }
  Stream stream() const { return stream_; }
  Measurements& into() { return into_; }

  /// Normal draws; integers are zero.
  Tensor drawn(const Shape& shape, DType dtype);
  Tensor empty(const Shape& shape, DType dtype, MemoryClass memory_class = MemoryClass::workspace);

  /// Device seconds of one launch of `call`, of many behind each other, noted as `what`.
  void time(const std::string& what, const OpCall& call);

  /// Durations of what `work` puts on the stream as communication or copies, `rounds` times; the
  /// median. Members of a group call it together. `before` runs before each round.
  template <class Work, class Before>
  double median_seconds(Work work, Before before) {
    std::vector<double> seconds;
    device_.synchronize(stream_);
    device_.take_profile(true);
    for (int i = 0; i < sizes_.rounds + 1; ++i) {
      before();
      launch_load();
      device_.phase(kMeasured, "measured");
      work();
      device_.phase(Phase::other, "");
      device_.synchronize(stream_);
      const double taken = seconds_in_phase(device_.take_profile(true));
      if (i > 0) seconds.push_back(taken);  // the first opens connections
    }
    return median(seconds);
  }

 private:
  /// Single launches keep the clock that passes of a training do not (gpu.sustained_clock): the
  /// phase is none of theirs.
  static constexpr Phase kMeasured = Phase::optimizer;
  static double seconds_in_phase(const Profile& profile);
  static double median(std::vector<double> values);
  double device_seconds(const OpCall& call);
  /// While the device is busy with this the host runs ahead: launching is not measured.
  void launch_load();

  Backend& device_;
  const MeasureSizes& sizes_;
  Measurements& into_;
  Allocator memory_;
  Stream stream_;
  uint32_t draws_ = 0;
  Tensor load_a_, load_b_, load_c_;  ///< of the product that keeps the device busy meanwhile
};

void measure_products(Bench& bench);
void measure_memory_ops(Bench& bench);
void measure_moe_ops(Bench& bench);
void measure_launches(Bench& bench);
void measure_copies(Bench& bench);
void measure_collectives(Bench& bench);

}  // namespace moetwin
