// Measurements made by the formulas of docs/modelled-cluster.md give their figures back.
#include <catch2/catch.hpp>
#include <cmath>

#include "backends/sim/calibration/fit.h"
#include "backends/sim/calibration/least_squares.h"
#include "backends/sim/calibration/profile_json.h"
#include "core/base/error.h"
#include "tests/backends/sim/sim_case.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

// toy-8gpu: bf16 products 2e12 flop/s, memory 100e9 bytes/s, NVLink 10e9, NIC 1e9 bytes/s.
constexpr double kProducts = 2e12, kMemory = 100e9;

KernelMeasurement kernel(KernelKind kind, double flop, double bytes, double seconds,
                         DType dtype = DType::bf16) {
  KernelMeasurement m;
  KernelWork work;
  work.kind = kind, work.dtype = dtype, work.flop = flop, work.bytes = bytes;
  m.what = "kernel";
  m.kernels = {work};
  m.seconds = seconds;
  return m;
}

CollectiveMeasurement collective(CollectiveKind kind, Group group, double bytes, double seconds) {
  CollectiveMeasurement m;
  m.kind = kind, m.group = group, m.bytes = bytes, m.seconds = seconds;
  m.what = "collective";
  const auto n = static_cast<size_t>(group.size());
  if (kind == CollectiveKind::all_to_all_v)
    m.pair_bytes.assign(n * n, bytes / static_cast<double>(n));
  return m;
}

constexpr Group kNode = {0, 1, 0, 8, 1};

double figure(const FitResult& fit, const std::string& key) {
  for (const FittedFigure& f : fit.figures)
    if (f.key == key) return f.value;
  return -1;
}

}  // namespace

TEST_CASE("products and what moves memory give efficiencies and the fixed time back") {
  // Products reach 0.6 of their peak, copies 0.7 and sorts 0.2 of the memory's, a kernel takes 3 us
  // more, and fp32 products 0.6 of 5e11 where the toy says 1e12.
  constexpr double fixed = 3e-6;
  Measurements m;
  for (const double flop : {1e9, 1e10, 1e11, 1e12})
    m.kernels.push_back(kernel(KernelKind::gemm, flop, 1, flop / (0.6 * kProducts) + fixed));
  m.kernels.push_back(kernel(KernelKind::gemm, 1e11, 1, 1e11 / (0.6 * 5e11) + fixed, DType::f32));
  for (const double bytes : {1e3, 1e6, 1e9}) {
    m.kernels.push_back(kernel(KernelKind::copy, 0, bytes, bytes / (0.7 * kMemory) + fixed));
    m.kernels.push_back(kernel(KernelKind::sort, 0, bytes, bytes / (0.2 * kMemory) + fixed));
  }
  m.launch_seconds = 5e-6;
  const FitResult fit = fit_profile(m, toy(), "made");
  const GpuProfile& gpu = fit.profile.gpu;
  const auto at = [](KernelKind k) { return static_cast<size_t>(k); };
  CHECK(gpu.compute_efficiency[at(KernelKind::gemm)] == Approx(0.6).epsilon(0.005));
  CHECK(gpu.bandwidth_efficiency[at(KernelKind::copy)] == Approx(0.7).epsilon(0.005));
  CHECK(gpu.bandwidth_efficiency[at(KernelKind::sort)] == Approx(0.2).epsilon(0.005));
  CHECK(gpu.kernel_seconds.value == Approx(3e-6).epsilon(0.01));
  CHECK(gpu.matmul_peak[static_cast<size_t>(DType::f32)].value == Approx(5e11).epsilon(0.01));
  CHECK(gpu.launch_overhead_seconds.value == 5e-6);
  // What nothing was said of is the base's.
  CHECK(gpu.bandwidth_efficiency[at(KernelKind::gather)] == 1);
  CHECK(figure(fit, "gpu.bandwidth_efficiency.gather") == -1);
  for (const ErrorSummary& e : summarise(fit.residuals)) CHECK(e.worst < 0.01);
}

TEST_CASE("a rate beyond the base's peak raises the peak") {
  Measurements m;
  m.kernels = {kernel(KernelKind::copy, 0, 1e9, 1e9 / (2 * kMemory)),
               kernel(KernelKind::copy, 0, 1e10, 1e10 / (2 * kMemory)),
               kernel(KernelKind::gather, 0, 1e10, 1e10 / kMemory)};
  const FitResult fit = fit_profile(m, toy(), "made");
  CHECK(fit.profile.gpu.memory_bandwidth.value == Approx(2 * kMemory).epsilon(0.01));
  CHECK(fit.profile.gpu.bandwidth_efficiency[static_cast<size_t>(KernelKind::gather)] ==
        Approx(0.5).epsilon(0.01));
}

TEST_CASE("one bad measurement does not decide") {
  Measurements m;
  for (int i = 0; i < 9; ++i)
    m.kernels.push_back(
        kernel(KernelKind::copy, 0, 1e9 * (i + 1), 1e9 * (i + 1) / (0.5 * kMemory)));
  m.kernels.push_back(kernel(KernelKind::copy, 0, 1e9, 10 * 1e9 / (0.5 * kMemory)));
  const FitResult fit = fit_profile(m, toy(), "made");
  CHECK(fit.profile.gpu.bandwidth_efficiency[static_cast<size_t>(KernelKind::copy)] ==
        Approx(0.5).epsilon(0.05));
  CHECK(summarise(fit.residuals)[0].worst == Approx(0.9).epsilon(0.02));
}

TEST_CASE("collectives on a node give bandwidth, latency of a step and fixed time back") {
  // all_reduce of n: C + 2 (n-1) L + 2 (n-1)/n S/B; gathers half of it; broadcast and all-to-all
  // tell C and L apart; of an all-to-all each member also copies its own part, read and written in
  // its memory. C = 20 us, L = 3 us, B = 8 GB/s of the toy's 10.
  constexpr double c = 20e-6, l = 3e-6, b = 8e9;
  Measurements m;
  for (const int64_t n : {2, 4, 8})
    for (const double bytes : {1e5, 1e6, 1e7, 1e8}) {
      const Group group = {0, 1, 0, n, 1};
      const auto ring = static_cast<double>(n - 1), size = static_cast<double>(n);
      m.collectives.push_back(collective(CollectiveKind::all_reduce, group, bytes,
                                         c + 2 * ring * l + 2 * ring / size * bytes / b));
      m.collectives.push_back(collective(CollectiveKind::all_gather, group, bytes,
                                         c + ring * l + ring / size * bytes / b));
      m.collectives.push_back(
          collective(CollectiveKind::all_to_all_v, group, bytes,
                     c + l + 2 * bytes / size / kMemory + ring / size * bytes / b));
    }
  const FitResult fit = fit_profile(m, toy(), "made");
  CHECK(fit.profile.nvlink.bandwidth.value == 10e9);
  CHECK(fit.profile.nvlink.efficiency == Approx(0.8).epsilon(0.01));
  CHECK(fit.profile.nvlink.latency.value == Approx(l).epsilon(0.01));
  CHECK(fit.profile.collective_seconds.value == Approx(c).epsilon(0.01));
  CHECK(figure(fit, "nic.efficiency") == -1);
  REQUIRE(fit.collectives.size() == 9);
  const AlphaBeta& last = fit.collectives[6];
  CHECK(last.what == "all_reduce of 8 on 1 node");
  CHECK(last.latency_seconds == Approx(c + 14 * l).epsilon(1e-6));
  CHECK(last.bus_bytes_per_second == Approx(b).epsilon(1e-6));
  CHECK(last.points == 4);
}

TEST_CASE("one GPU of each node gives the NIC") {
  // A ring whose every hop leaves a node: all_gather takes C + (n-1) L + (n-1)/n S/B.
  constexpr double c = 15e-6, l = 8e-6, b = 0.9e9;
  Measurements m;
  for (const int64_t n : {2, 4})
    for (const double bytes : {1e5, 1e6, 1e7, 1e8}) {
      const auto hops = static_cast<double>(n - 1), size = static_cast<double>(n);
      m.collectives.push_back(collective(CollectiveKind::all_gather, {0, 1, 0, n, 8}, bytes,
                                         c + hops * l + hops / size * bytes / b));
    }
  const FitResult fit = fit_profile(m, toy(), "made");
  CHECK(fit.profile.nic.efficiency == Approx(0.9).epsilon(0.01));
  CHECK(fit.profile.nic.latency.value == Approx(l).epsilon(0.02));
  CHECK(fit.profile.collective_seconds.value == Approx(c).epsilon(0.02));
  CHECK(figure(fit, "nvlink.efficiency") == -1);
}

TEST_CASE("copies give PCIe; nothing to fit and impossible groups are refused") {
  Measurements m;
  for (const double bytes : {1e4, 1e6, 1e8}) m.copies.push_back({true, bytes, 7e-6 + bytes / 6e9});
  const FitResult fit = fit_profile(m, toy(), "made");
  CHECK(fit.profile.pcie.efficiency == Approx(0.6).epsilon(1e-6));
  CHECK(fit.profile.pcie.latency.value == Approx(7e-6).epsilon(1e-6));
  CHECK_THROWS_AS(fit_profile({}, toy(), "made"), Error);
  m.collectives = {collective(CollectiveKind::all_reduce, {0, 1, 0, 1, 1}, 1e6, 1e-3)};
  CHECK_THROWS_WITH(fit_profile(m, toy(), "made"), Catch::Contains("fewer than 2 GPUs"));
}

TEST_CASE("lines with the least relative residuals") {
  const Line line = fit_line({1, 10, 100, 1000}, {3.5, 8, 53, 503});
  CHECK(line.constant == Approx(3).epsilon(1e-9));
  CHECK(line.slope == Approx(0.5).epsilon(1e-9));
  CHECK(fit_line({4}, {8}).slope == 2);
  CHECK(fit_line({}, {}).slope == 0);
  // A latency below nothing is none.
  CHECK(fit_line({1, 2}, {1, 3}).constant == 0);
}

TEST_CASE("the fitted profile is a file that reads back, with the base's figures beside") {
  Measurements m;
  for (const double bytes : {1e6, 1e9})
    m.kernels.push_back(kernel(KernelKind::copy, 0, bytes, bytes / (0.7 * kMemory) + 1e-6));
  const FitResult fit = fit_profile(m, toy(), "made");
  std::string base = "{\n";
  {
    const ClusterProfile from = toy();
    std::FILE* file = std::fopen(from.path.c_str(), "rb");
    REQUIRE(file);
    base.assign(1 << 16, '\0');
    base.resize(std::fread(base.data(), 1, base.size(), file));
    std::fclose(file);
  }
  const std::string text = profile_text(base, "a test", "new GPU", fit.figures);
  const ClusterProfile read = parse_cluster_profile(text, "fitted.json");
  CHECK(read.gpu.name == "new GPU");
  CHECK(read.gpu.bandwidth_efficiency[static_cast<size_t>(KernelKind::copy)] ==
        Approx(0.7).epsilon(0.01));
  CHECK(read.nvlink.bandwidth.value == 10e9);
  CHECK(read.gpus_per_node == 8);
  CHECK(text.find("made: fit to 2 kernels") != std::string::npos);
}

TEST_CASE("measurements go through a file") {
  Measurements m;
  m.machine = "a machine", m.device_name = "GPU", m.launch_seconds = 4e-6, m.gpus_per_node = 8;
  m.kernels = {kernel(KernelKind::grouped_gemm, 1e9, 1e6, 1e-3)};
  m.collectives = {collective(CollectiveKind::all_to_all_v, kNode, 8e6, 1e-3)};
  m.copies = {{false, 1e6, 1e-3}};
  Json::Value json = measurements_json(m);
  CHECK(json["kernels"][0]["flop_per_second"].asDouble() == Approx(1e12));
  CHECK(json["collectives"][0]["bus_bytes_per_second"].asDouble() == Approx(7e9));
  const Measurements back = measurements_from(json, "file.json");
  CHECK(back.kernels[0].kernels[0].kind == KernelKind::grouped_gemm);
  CHECK(back.kernels[0].seconds == 1e-3);
  CHECK(back.collectives[0].pair_bytes.size() == 64);
  CHECK(back.collectives[0].group == kNode);
  CHECK_FALSE(back.copies[0].to_device);
  json["collectives"][0]["kind"] = "all_of_it";
  CHECK_THROWS_WITH(
      measurements_from(json, "file.json"),
      Catch::Contains("file.json: collectives[0].kind") && Catch::Contains("all_reduce"));
  json["collectives"][0]["kind"] = "all_reduce";
  json["kernels"][0]["seconds"] = 0;
  CHECK_THROWS_WITH(measurements_from(json, "file.json"), Catch::Contains("greater than 0"));
}
