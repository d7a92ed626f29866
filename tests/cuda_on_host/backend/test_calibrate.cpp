// Calibration on the emulated machine: what is measured there are times of this computer, so only
// that everything is measured, and that a profile which can be used comes of it.
#include <json/reader.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <sstream>

#include "backends/sim/calibration/fit.h"
#include "backends/sim/calibration/measure.h"
#include "backends/sim/calibration/profile_json.h"
#include "core/record/json_text.h"
#include "tests/cuda_on_host/backend/ranks.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

Measurements measured(int64_t world) {
  CudaOptions options = emulated_options();
  options.nvml_library = "none";
  const auto ended = as_threads(
      world_of(world),
      [](Backend& device) {
        Measurements into;
        measure(device, tiny_sizes(), into);
        return json_text(measurements_json(into));
      },
      options);
  INFO(ended[0].text);
  REQUIRE(ended[0].exit_code == 0);
  Json::Value json;
  std::istringstream(ended[0].text) >> json;
  return measurements_from(json, "rank 0");
}

}  // namespace

TEST_CASE("every op and collective is measured on GPUs, and a profile comes of it") {
  const Measurements m = measured(2);
  std::map<std::string, int> kinds;
  for (const KernelMeasurement& k : m.kernels) {
    INFO(k.what);
    CHECK(std::isfinite(k.seconds));
    CHECK(k.seconds > 0);
    ++kinds[kernel_kind_name(k.kernels.front().kind)];
  }
  for (const char* kind : {"gemm", "grouped_gemm", "attention", "elementwise", "reduction",
                           "gather", "sort", "optimizer", "copy"}) {
    INFO(kind);
    CHECK(kinds[kind] > 0);
  }
  std::map<CollectiveKind, int> collectives;
  for (const CollectiveMeasurement& c : m.collectives) {
    CHECK(c.seconds > 0);
    CHECK(c.group.size() == 2);
    ++collectives[c.kind];
  }
  // Three sizes each, the exchange also with a skew.
  CHECK(collectives[CollectiveKind::all_reduce] == 3);
  CHECK(collectives[CollectiveKind::all_gather] == 3);
  CHECK(collectives[CollectiveKind::reduce_scatter] == 3);
  CHECK(collectives[CollectiveKind::broadcast] == 3);
  CHECK(collectives[CollectiveKind::send] == 3);
  CHECK(collectives[CollectiveKind::all_to_all_v] == 6);
  CHECK(m.copies.size() == 2 * 3);  // 1, 8 and 64 KiB
  CHECK(m.launch_seconds > 0);
  CHECK(m.gpus_per_node == 2);

  const ClusterProfile base = read_cluster_profile("dgx-a100-80g", {TEST_CLUSTERS});
  const FitResult fit = fit_profile(m, base, "emulation");
  const ClusterProfile read =
      parse_cluster_profile(profile_text(base.text, "emulated", "", fit.figures), "fitted.json");
  CHECK(read.gpus_per_node == 2);
  CHECK(read.nvlink.effective().value > 0);
}
