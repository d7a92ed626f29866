#pragma once
// The figures of a machine profile that make the modelled costs agree with what was measured. The
// model itself is evaluated (cost/roofline.h, collective/plan.h), so that a term added there is
// fitted too.

#include <string>
#include <vector>

#include "backends/sim/calibration/measurements.h"
#include "backends/sim/cluster/profile.h"

namespace moetwin {

/// A figure of the profile that the fit changed: its dotted key, value and where it is from.
struct FittedFigure {
  std::string key;
  double value = 0;
  std::string source;
};

/// A measurement beside what the fitted profile says of it.
struct Residual {
  std::string family, what;  ///< family: "gemm", "all_reduce", "copy to device"
  double measured_seconds = 0, modelled_seconds = 0;
  double error() const { return modelled_seconds / measured_seconds - 1; }
};

/// t = latency + bytes * bus_factor / bus_bandwidth for one collective of one group.
struct AlphaBeta {
  std::string what;  ///< "all_reduce of 8 on 1 node"
  int64_t points = 0;
  double latency_seconds = 0, bus_bytes_per_second = 0;
  double worst_error = 0;  ///< largest relative residual, without sign
};

struct FitResult {
  ClusterProfile profile;  ///< the base with the fitted figures
  std::vector<FittedFigure> figures;
  std::vector<Residual> residuals;
  std::vector<AlphaBeta> collectives;
  std::vector<std::string> notes;  ///< what was left as in the base, and why
};

/// `base`: peaks of the data sheets, and every figure that no measurement speaks of. Rates above a
/// peak of the base raise it. `from`: what a figure's source says of where the measurements are
/// from. Throws Error(configuration) when there are no measurements, or a group has more members on
/// a node than the profile has GPUs. `only`: where there are any, of links and NCCL only figures
/// whose key has one of these in it ("nic": what lies between nodes).
FitResult fit_profile(const Measurements& measurements, const ClusterProfile& base,
                      const std::string& from, const std::vector<std::string>& only = {});

/// Median and largest error without sign by family, in order of first appearance.
struct ErrorSummary {
  std::string family;
  int64_t count = 0;
  double median = 0, worst = 0;
  std::string worst_what;
};
std::vector<ErrorSummary> summarise(const std::vector<Residual>& residuals);

}  // namespace moetwin
