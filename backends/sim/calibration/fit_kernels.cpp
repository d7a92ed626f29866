// Efficiencies by kind of kernel, peaks of other types, the fixed time of a kernel.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "backends/sim/calibration/fit_parts.h"
#include "backends/sim/calibration/least_squares.h"
#include "backends/sim/cost/roofline.h"
#include "backends/sim/cost/tiles.h"

namespace moetwin {
namespace {

double modelled(const KernelMeasurement& m, const GpuProfile& gpu) {
  double seconds = 0;
  for (const KernelWork& k : m.kernels) seconds += cost(k, gpu).value;
  return seconds;
}

/// Kernels of a measurement all of one kind say something of that kind alone, unless tiles price
/// them.
bool is_of(const KernelMeasurement& m, const GpuProfile& gpu, KernelKind kind) {
  return std::all_of(m.kernels.begin(), m.kernels.end(), [&gpu, kind](const KernelWork& k) {
    return k.kind == kind && !has_tiles(k, gpu);
  });
}

/// A figure that is fitted: where it lies and its key.
struct Unknown {
  std::string key;
  std::function<double&(GpuProfile&)> at;
};

// How well the work of one kind uses a peak, at least: no kernel is faster than its bytes and FLOP.
struct Rates {
  double compute = 0, bandwidth = 0;
};
Rates best_rates(const Measurements& m, const GpuProfile& gpu, KernelKind kind) {
  Rates best;
  for (const KernelMeasurement& k : m.kernels) {
    if (!is_of(k, gpu, kind)) continue;
    double ideal_compute = 0;
    for (const KernelWork& w : k.kernels)
      ideal_compute += w.flop / peak(gpu, w.kind, w.dtype).value;
    best.compute = std::max(best.compute, ideal_compute / k.seconds);
    best.bandwidth = std::max(best.bandwidth, bytes_of(k) / gpu.memory_bandwidth.value / k.seconds);
  }
  return best;
}

bool has_products(const Measurements& m, DType dtype) {
  return std::any_of(m.kernels.begin(), m.kernels.end(), [dtype](const KernelMeasurement& k) {
    return k.kernels.size() == 1 && k.kernels[0].kind == KernelKind::gemm &&
           k.kernels[0].dtype == dtype;
  });
}

/// Every efficiency of a profile.
std::vector<Unknown> efficiencies() {
  std::vector<Unknown> list;
  for (int i = 0; i < kKernelKinds; ++i) {
    const auto index = static_cast<size_t>(i);
    const std::string name = kernel_kind_name(static_cast<KernelKind>(i));
    list.push_back({"gpu.compute_efficiency." + name,
                    [index](GpuProfile& g) -> double& { return g.compute_efficiency[index]; }});
    list.push_back({"gpu.bandwidth_efficiency." + name,
                    [index](GpuProfile& g) -> double& { return g.bandwidth_efficiency[index]; }});
  }
  return list;
}

/// So many products tell how the library cuts them too.
constexpr int64_t kManyProducts = 60;

bool has_many_products(const Measurements& m, const GpuProfile& gpu) {
  return std::count_if(m.kernels.begin(), m.kernels.end(), [&gpu](const KernelMeasurement& k) {
           return k.kernels.size() == 1 && has_tiles(k.kernels[0], gpu);
         }) >= kManyProducts;
}

/// What of the tiles' model products of a few shapes tell, and with `many` the rest but the cost of
/// cutting k, which few of them show.
std::vector<Unknown> of_tiles(bool many) {
  std::vector<Unknown> list = {
      {"gpu.matmul_tiles.efficiency", [](GpuProfile& g) -> double& { return g.tiles->efficiency; }},
      {"gpu.matmul_tiles.bandwidth_efficiency",
       [](GpuProfile& g) -> double& { return g.tiles->bandwidth_efficiency; }},
      {"gpu.matmul_tiles.fixed_seconds",
       [](GpuProfile& g) -> double& { return g.tiles->fixed_seconds.value; }}};
  if (!many) return list;
  list.push_back({"gpu.matmul_tiles.edge", [](GpuProfile& g) -> double& { return g.tiles->edge; }});
  list.push_back({"gpu.matmul_tiles.tile_seconds",
                  [](GpuProfile& g) -> double& { return g.tiles->tile_seconds.value; }});
  list.push_back({"gpu.matmul_tiles.tail", [](GpuProfile& g) -> double& { return g.tiles->tail; }});
  return list;
}

std::vector<Unknown> unknowns(const Measurements& m, GpuProfile& gpu) {
  const std::vector<Unknown> all = efficiencies();
  std::vector<Unknown> list;
  for (int i = 0; i < kKernelKinds; ++i) {
    const auto kind = static_cast<KernelKind>(i);
    const auto index = static_cast<size_t>(i);
    const bool known = std::any_of(m.kernels.begin(), m.kernels.end(),
                                   [&](const KernelMeasurement& k) { return is_of(k, gpu, kind); });
    if (!known) continue;
    const Rates best = best_rates(m, gpu, kind);
    // A rate that was seen is possible: the search begins there. Where the base's is higher it may
    // be right, since another limit may have decided.
    const bool product = kind == KernelKind::gemm || kind == KernelKind::grouped_gemm ||
                         kind == KernelKind::attention;
    double& compute = gpu.compute_efficiency[index];
    double& bandwidth = gpu.bandwidth_efficiency[index];
    if (best.compute > 0) {
      compute = product ? best.compute : std::max(best.compute, compute);
      list.push_back(all[2 * index]);
    }
    if (best.bandwidth > 0) {
      bandwidth = product ? std::max(best.bandwidth, bandwidth) : best.bandwidth;
      list.push_back(all[2 * index + 1]);
    }
  }
  if (gpu.tiles) {
    for (const Unknown& u : of_tiles(has_many_products(m, gpu))) list.push_back(u);
  }
  for (const DType d : {DType::f32, DType::bf16, DType::f16})
    if (d != m.dtype && has_products(m, d) && has_products(m, m.dtype))
      list.push_back(
          {std::string("gpu.matmul_flop_per_second.") + dtype_name(d),
           [d](GpuProfile& g) -> double& { return g.matmul_peak[static_cast<size_t>(d)].value; }});
  double shortest = 1;
  for (const KernelMeasurement& k : m.kernels)
    shortest = std::min(shortest, k.seconds / static_cast<double>(k.kernels.size()));
  gpu.kernel_seconds = Seconds(std::max(1e-9, shortest / 2));
  list.push_back(
      {"gpu.kernel_seconds", [](GpuProfile& g) -> double& { return g.kernel_seconds.value; }});
  return list;
}

/// Whether any time depends on a figure: the others are not known from these measurements.
bool decides(const Residuals& residuals, std::vector<double> values, size_t index) {
  const std::vector<double> here = residuals(values);
  for (const double factor : {1.001, 0.999 / 1.001}) {
    values[index] *= factor;
    if (residuals(values) != here) return true;
  }
  return false;
}

// A share of more than 1 means that the base's peak is too low: raised so that it is 1.
void raise_peaks(GpuProfile& gpu, const std::string& from, FitResult& result) {
  double bandwidth =
      *std::max_element(gpu.bandwidth_efficiency.begin(), gpu.bandwidth_efficiency.end());
  if (gpu.tiles) bandwidth = std::max(bandwidth, gpu.tiles->bandwidth_efficiency);
  if (bandwidth > 1) {
    gpu.memory_bandwidth = BytesPerSecond(gpu.memory_bandwidth.value * bandwidth);
    for (double& e : gpu.bandwidth_efficiency) e = std::min(1.0, e / bandwidth);
    if (gpu.tiles)
      gpu.tiles->bandwidth_efficiency = std::min(1.0, gpu.tiles->bandwidth_efficiency / bandwidth);
    result.figures.push_back({"gpu.memory_bytes_per_second", gpu.memory_bandwidth.value,
                              from + ": the best rate, beyond the base's peak"});
  }
  constexpr KernelKind kProducts[] = {KernelKind::gemm, KernelKind::grouped_gemm,
                                      KernelKind::attention};
  double compute = gpu.tiles ? gpu.tiles->efficiency : 0;
  for (const KernelKind kind : kProducts)
    compute = std::max(compute, gpu.compute_efficiency[static_cast<size_t>(kind)]);
  if (compute > 1) {
    for (FlopPerSecond& p : gpu.matmul_peak) p = FlopPerSecond(p.value * compute);
    for (const KernelKind kind : kProducts) {
      double& e = gpu.compute_efficiency[static_cast<size_t>(kind)];
      e = std::min(1.0, e / compute);
    }
    if (gpu.tiles) gpu.tiles->efficiency = std::min(1.0, gpu.tiles->efficiency / compute);
    for (const DType d : {DType::f32, DType::bf16, DType::f16, DType::f64})
      result.figures.push_back(
          {std::string("gpu.matmul_flop_per_second.") + dtype_name(d),
           gpu.matmul_peak[static_cast<size_t>(d)].value,
           from + ": scaled, since products were faster than the base's peak"});
  }
  // Shares of what is no product lie on peaks of their own; none is above them.
  for (double& e : gpu.compute_efficiency) e = std::min(1.0, e);
  if (gpu.tiles) gpu.tiles->tail = std::min(1.0, gpu.tiles->tail);
}

}  // namespace

void fit_kernels(const Measurements& m, const std::string& from, FitResult& result) {
  if (m.kernels.empty()) {
    result.notes.push_back("gpu: no kernels were measured, efficiencies as in the base");
    return;
  }
  GpuProfile& gpu = result.profile.gpu;
  const GpuProfile base = gpu;
  const std::vector<Unknown> list = unknowns(m, gpu);
  const auto with = [&](const std::vector<double>& values) {
    GpuProfile g = gpu;
    for (size_t i = 0; i < list.size(); ++i) list[i].at(g) = values[i];
    return g;
  };
  const Residuals residuals = [&](const std::vector<double>& values) {
    const GpuProfile g = with(values);
    std::vector<double> r;
    for (const KernelMeasurement& k : m.kernels) r.push_back(std::log(modelled(k, g) / k.seconds));
    return r;
  };
  std::vector<double> values;
  for (const Unknown& u : list) values.push_back(u.at(gpu));
  const std::vector<double> start = values;
  values = fit_positive(residuals, start, kOutlier);
  std::vector<Unknown> decided;
  for (size_t i = 0; i < list.size(); ++i)
    if (decides(residuals, values, i))
      decided.push_back(list[i]);
    else
      values[i] = start[i];
  gpu = with(values);
  raise_peaks(gpu, from, result);
  const std::string source = fmt::format("{}: fit to {} kernels", from, m.kernels.size());
  for (const Unknown& u : decided) result.figures.push_back({u.key, u.at(gpu), source});
  GpuProfile before = base;
  std::vector<Unknown> all = efficiencies();
  if (gpu.tiles)
    for (const Unknown& u : of_tiles(has_many_products(m, gpu))) all.push_back(u);
  for (const Unknown& u : all)
    if (u.at(gpu) != u.at(before) &&
        std::none_of(decided.begin(), decided.end(),
                     [&u](const Unknown& d) { return d.key == u.key; }))
      result.figures.push_back(
          {u.key, u.at(gpu), from + ": the base's rate, against what was seen and the peak now"});
  for (const KernelMeasurement& k : m.kernels)
    result.residuals.push_back(
        {kernel_kind_name(k.kernels.front().kind), k.what, k.seconds, modelled(k, gpu)});
}

}  // namespace moetwin
