// Seed 000's symptom: some GPUs are much hotter than the others.
#include <catch2/catch.hpp>

#include "cli/gpu_verdicts.h"

using namespace moetwin;
using Catch::Contains;

namespace {

std::vector<RankGpu> gpus(const std::vector<int>& celsius) {
  std::vector<RankGpu> list;
  for (size_t r = 0; r < celsius.size(); ++r) {
    RankGpu g;
    g.rank = static_cast<int64_t>(r);
    g.name = "H100", g.host = "n1", g.pci = "0000:1B:00.0";
    g.temperature_celsius = celsius[r];
    g.sm_clock_mhz = 1290, g.sm_clock_most_mhz = 1980;
    list.push_back(g);
  }
  return list;
}

}  // namespace

TEST_CASE("GPUs of about the same temperature say nothing") {
  CHECK(gpu_verdicts(gpus({60, 64, 58, 66}), 3).empty());
  CHECK(gpu_verdicts({}, 1).empty());
  // Two GPUs, or a driver that reports nothing.
  CHECK(gpu_verdicts(gpus({50, 90}), 1).empty());
  CHECK(gpu_verdicts(gpus({-1, -1, -1, -1}), 1).empty());
}

TEST_CASE("one hot GPU: uneven experts or its cooling") {
  const auto uneven = gpu_verdicts(gpus({60, 62, 81, 61}), 1.7);
  REQUIRE(uneven.size() == 1);
  CHECK(uneven[0].kind == "gpu_hot");
  CHECK_THAT(uneven[0].evidence, Contains("rank 2") && Contains("81 C") && Contains("61 C") &&
                                     Contains("1.70 times the mean"));
  CHECK_THAT(uneven[0].advice, Contains("aux_loss_factor") && Contains("capacity_factor"));
  const auto even = gpu_verdicts(gpus({60, 62, 81, 61}), 1.05);
  REQUIRE(even.size() == 1);
  CHECK_THAT(even[0].advice, Contains("cooling") && !Contains("aux_loss_factor"));
}

TEST_CASE("a GPU that its driver slows is named with why") {
  auto list = gpus({88, 70});
  list[0].slowed_by = "thermal (hardware)";
  list[1].slowed_by = "power limit";
  list[1].power_watts = 700, list[1].power_limit_watts = 700;
  const auto verdicts = gpu_verdicts(list, 0);
  REQUIRE(verdicts.size() == 2);
  CHECK(verdicts[0].kind == "gpu_slowed");
  CHECK_THAT(verdicts[0].evidence, Contains("rank 0's H100") && Contains("thermal (hardware)") &&
                                       Contains("88 C") && Contains("1290 of 1980 MHz"));
  CHECK_THAT(verdicts[0].advice, Contains("cooling"));
  CHECK_THAT(verdicts[1].evidence, Contains("power limit") && Contains("700 of 700 W"));
  CHECK_THAT(verdicts[1].advice, Contains("nvidia-smi -pl"));
}
