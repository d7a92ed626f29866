// The check of calibration on itself: a modelled machine is measured as a real one would be, and
// its profile comes back, from a base that has other figures.
#include <json/reader.h>

#include <catch2/catch.hpp>
#include <sstream>

#include "backends/sim/calibration/fit.h"
#include "backends/sim/calibration/measure.h"
#include "backends/sim/cluster.h"
#include "core/ops/isa.h"
#include "core/record/json_text.h"
#include "tests/support/in_child.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

constexpr int64_t kWorld = 16;  // two nodes

/// With one protocol, and attention by its efficiency alone: these figures are few enough to come
/// back one by one.
ClusterProfile truth() {
  ClusterProfile p = read_cluster_profile("dgx-a100-80g", {TEST_CLUSTERS});
  p.nccl_section.reset();
  p.gpu.attention = {};
  return p;
}

/// The same data sheets, but wrong about everything that is measured.
ClusterProfile wrong() {
  ClusterProfile p = truth();
  p.gpu.compute_efficiency[static_cast<size_t>(KernelKind::attention)] = 0.4;
  for (double& e : p.gpu.bandwidth_efficiency) e = 0.5;
  p.gpu.tiles->efficiency = 0.6;
  p.gpu.tiles->bandwidth_efficiency = 0.3;
  p.gpu.tiles->fixed_seconds = Seconds(2e-5);
  p.gpu.kernel_seconds = Seconds(1e-5);
  p.gpu.launch_overhead_seconds = Seconds(2e-5);
  for (LinkProfile* link : {&p.nvlink, &p.nic, &p.pcie}) {
    link->efficiency = 0.5;
    link->latency = Seconds(link->latency.value * 4);
  }
  p.collective_seconds = Seconds(5e-5);
  return p;
}

Measurements measured() {
  const std::string text = in_child([] {
    Scenario s;
    s.training_config.numerics = "none";
    s.training_config.dtype = "bf16";
    s.distributed_config.world_size = s.distributed_config.data_parallel_size = kWorld;
    SimOptions options;
    options.references = [](const Op& op) { return reference_of(op, best_isa()); };
    Measurements into;
    make_sim_cluster(s, truth(), options)->run([&](Backend& device) {
      measure(device, sizes_for(device.properties(), DType::bf16), into);
    });
    return json_text(measurements_json(into));
  });
  Json::Value json;
  std::istringstream(text) >> json;
  return measurements_from(json, "child");
}

}  // namespace

TEST_CASE("calibrating the modelled DGX A100 gives its profile back") {
  const Measurements m = measured();
  CHECK(m.gpus_per_node == 8);
  CHECK(m.kernels.size() > 25);
  const FitResult fit = fit_profile(m, wrong(), "self-check");
  const ClusterProfile is = truth(), &got = fit.profile;
  const auto near = [](double a) { return Approx(a).epsilon(0.03); };
  const auto attention = static_cast<size_t>(KernelKind::attention);
  CHECK(got.gpu.compute_efficiency[attention] == near(is.gpu.compute_efficiency[attention]));
  // Plain and grouped products are priced by their tiles.
  REQUIRE(is.gpu.tiles);
  CHECK(got.gpu.tiles->efficiency == near(is.gpu.tiles->efficiency));
  CHECK(got.gpu.tiles->bandwidth_efficiency == near(is.gpu.tiles->bandwidth_efficiency));
  CHECK(got.gpu.tiles->fixed_seconds.value == near(is.gpu.tiles->fixed_seconds.value));
  for (const KernelKind kind : {KernelKind::elementwise, KernelKind::reduction, KernelKind::gather,
                                KernelKind::sort, KernelKind::optimizer, KernelKind::copy}) {
    INFO(kernel_kind_name(kind));
    const auto i = static_cast<size_t>(kind);
    CHECK(got.gpu.bandwidth_efficiency[i] == near(is.gpu.bandwidth_efficiency[i]));
  }
  const auto f32 = static_cast<size_t>(DType::f32);
  CHECK(got.gpu.matmul_peak[f32].value == near(is.gpu.matmul_peak[f32].value));
  CHECK(got.gpu.kernel_seconds.value == near(is.gpu.kernel_seconds.value));
  CHECK(got.gpu.launch_overhead_seconds.value == near(is.gpu.launch_overhead_seconds.value));
  CHECK(got.gpu.memory.value == is.gpu.memory.value);
  CHECK(got.nvlink.effective().value == near(is.nvlink.effective().value));
  CHECK(got.nvlink.latency.value == near(is.nvlink.latency.value));
  CHECK(got.nic.effective().value == near(is.nic.effective().value));
  CHECK(got.nic.latency.value == near(is.nic.latency.value));
  CHECK(got.collective_seconds.value == near(is.collective_seconds.value));
  CHECK(got.pcie.effective().value == near(is.pcie.effective().value));
  CHECK(got.pcie.latency.value == near(is.pcie.latency.value));
  for (const ErrorSummary& e : summarise(fit.residuals)) {
    INFO(e.family << ", " << e.worst_what);
    CHECK(e.worst < 0.03);
  }
}
