#include "backends/sim/calibration/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backends/sim/calibration/fit_parts.h"
#include "backends/sim/calibration/least_squares.h"
#include "backends/sim/cost/roofline.h"
#include "core/base/error.h"
#include "core/base/units.h"

namespace moetwin {

void fit_copies(const Measurements& m, const std::string& from, FitResult& result) {
  if (m.copies.empty()) return;
  std::vector<double> bytes, seconds;
  for (const CopyMeasurement& c : m.copies) bytes.push_back(c.bytes), seconds.push_back(c.seconds);
  const Line line = fit_line(bytes, seconds);
  LinkProfile& pcie = result.profile.pcie;
  if (line.slope > 0) {
    const double rate = 1 / line.slope;
    if (rate > pcie.bandwidth.value) {
      result.figures.push_back({"pcie.bytes_per_second", rate, from + ": copies beyond the base"});
      pcie.bandwidth = BytesPerSecond(rate);
    }
    pcie.efficiency = rate / pcie.bandwidth.value;
    result.figures.push_back(
        {"pcie.efficiency", pcie.efficiency,
         fmt::format("{}: {:.4g} GB/s of {} copies from {} to {}", from, rate / 1e9,
                     m.copies.size(), format_bytes(*std::min_element(bytes.begin(), bytes.end())),
                     format_bytes(*std::max_element(bytes.begin(), bytes.end())))});
  }
  pcie.latency = Seconds(line.constant);
  result.figures.push_back({"pcie.latency_seconds", line.constant, from + ": copies"});
  for (const CopyMeasurement& c : m.copies)
    result.residuals.push_back({c.to_device ? "copy to device" : "copy to host",
                                format_bytes(c.bytes), c.seconds,
                                copy_cost(Bytes(c.bytes), pcie).value});
}

FitResult fit_profile(const Measurements& m, const ClusterProfile& base, const std::string& from,
                      const std::vector<std::string>& only) {
  if (m.kernels.empty() && m.collectives.empty() && m.copies.empty() && m.launch_seconds < 0)
    throw Error(ErrorClass::configuration, "there are no measurements to fit a profile to");
  FitResult result;
  result.profile = base;
  GpuProfile& gpu = result.profile.gpu;
  if (m.memory_bytes > 0) {
    // The modelled GPU takes its context off again.
    gpu.memory = Bytes(static_cast<double>(m.memory_bytes) + gpu.context.value);
    result.figures.push_back({"gpu.memory_bytes", gpu.memory.value,
                              from + ": what may be reserved, and gpu.context_bytes"});
  }
  if (m.gpus_per_node > 0) {
    result.profile.gpus_per_node = m.gpus_per_node;
    result.figures.push_back(
        {"node.gpus", static_cast<double>(m.gpus_per_node), from + ": GPUs of a node"});
    if (m.gpus_per_node % result.profile.nics_per_node != 0) {
      result.profile.nics_per_node = 1;
      result.figures.push_back(
          {"node.nics", 1,
           fmt::format("assumed: the base's NICs do not divide {} GPUs", m.gpus_per_node)});
    }
  }
  if (m.peak_flop_per_second > 0 &&
      m.peak_flop_per_second != gpu.matmul_peak[static_cast<size_t>(m.dtype)].value) {
    gpu.matmul_peak[static_cast<size_t>(m.dtype)] = FlopPerSecond(m.peak_flop_per_second);
    result.figures.push_back({std::string("gpu.matmul_flop_per_second.") + dtype_name(m.dtype),
                              m.peak_flop_per_second,
                              m.peak_source.empty() ? from : m.peak_source});
  }
  if (m.launch_seconds >= 0) {
    gpu.launch_overhead_seconds = Seconds(m.launch_seconds);
    result.figures.push_back(
        {"gpu.launch_overhead_seconds", m.launch_seconds, from + ": host time of a launch"});
  } else {
    result.notes.push_back("gpu.launch_overhead_seconds: not measured, as in the base");
  }
  fit_kernels(m, from, result);
  fit_collectives(m, from, only, result);
  if (m.copies.empty()) result.notes.push_back("pcie: not measured, as in the base");
  fit_copies(m, from, result);
  return result;
}

std::vector<ErrorSummary> summarise(const std::vector<Residual>& residuals) {
  std::vector<ErrorSummary> list;
  std::vector<std::vector<double>> errors;
  for (const Residual& r : residuals) {
    size_t i = 0;
    while (i < list.size() && list[i].family != r.family) ++i;
    if (i == list.size()) {
      list.push_back({r.family, 0, 0, 0, ""});
      errors.emplace_back();
    }
    const double error = std::abs(r.error());
    errors[i].push_back(error);
    ++list[i].count;
    if (error >= list[i].worst) list[i].worst = error, list[i].worst_what = r.what;
  }
  for (size_t i = 0; i < list.size(); ++i) {
    std::vector<double>& e = errors[i];
    std::sort(e.begin(), e.end());
    list[i].median = (e[(e.size() - 1) / 2] + e[e.size() / 2]) / 2;
  }
  return list;
}

}  // namespace moetwin
