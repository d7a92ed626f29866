// Tables of published collectives, and what they say of NCCL's settings.
#include <catch2/catch.hpp>

#include "backends/sim/calibration/collectives_csv.h"
#include "backends/sim/calibration/fit.h"
#include "core/base/error.h"
#include "tests/backends/sim/sim_case.h"

using namespace moetwin;

namespace {

const std::string kHeader =
    "series,collective,gpu,nodes,gpus_per_node,env_algo,size_bytes,time_us,busbw_GBps\n";

std::vector<CollectiveMeasurement> read(const std::string& rows,
                                        std::vector<std::string>* problems = nullptr,
                                        const std::vector<std::string>& series = {}) {
  std::vector<std::string> own;
  return read_collectives_csv(kHeader + rows, "t.csv", "A100", series, 1, 1e18, 8,
                              problems ? *problems : own);
}

}  // namespace

TEST_CASE("rows of a table: times, or bus bandwidths where there is no time") {
  std::vector<std::string> problems;
  const auto list = read(
      "A,all_reduce,A100,2,8,NCCL_ALGO=Tree NCCL_PROTO=LL,1000000,50,\n"
      "B,all_gather,A100-SXM4,1,8,,8000000,,100\n"
      "C,all_reduce,H100,1,8,,8000000,1,\n"
      "D,alltoall,A100,1,4,,4000,9,\n"
      "E,ep_dispatch,A100,1,8,,8000,9,\n"
      "F,all_reduce,A100,1,16,,8000,9,\n"
      "G,all_reduce,A100,1,8,,8000,,\n",
      &problems);
  REQUIRE(list.size() == 3);
  CHECK(list[0].kind == CollectiveKind::all_reduce);
  CHECK(list[0].group == Group{0, 2, 8, 8, 1});
  CHECK(list[0].seconds == Approx(50e-6));
  CHECK(list[0].nccl.at("NCCL_ALGO") == "Tree");
  CHECK(list[0].nccl.at("NCCL_PROTO") == "LL");
  CHECK(list[1].seconds == Approx(7.0 / 8 * 8e6 / 100e9));
  CHECK(list[2].pair_bytes == std::vector<double>(16, 1000));
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].find("t.csv:7: has more GPUs on a node") == 0);
  CHECK(problems[1].find("t.csv:8: has neither time_us nor busbw_GBps") == 0);
  CHECK(read("A1,all_reduce,A100,2,8,,100,5,\nB,all_reduce,A100,2,8,,100,5,\n", nullptr, {"A"})
            .size() == 1);
  CHECK_THROWS_WITH(read(""), Catch::Contains("no row is left"));
  std::vector<std::string> none;
  CHECK_THROWS_WITH(read_collectives_csv("collective,nodes\n", "t.csv", "", {}, 1, 1e18, 8, none),
                    Catch::Contains("t.csv:1") && Catch::Contains("gpus_per_node"));
}

TEST_CASE("what a table says of NCCL's settings") {
  CHECK(nccl_variables("NVLSTree").at("NCCL_ALGO") == "NVLSTree");
  CHECK(nccl_variables("ring (NVLS off)").at("NCCL_ALGO") == "ring");
  CHECK(nccl_variables("NCCL_NVLS_ENABLE=0 (ring)") ==
        std::map<std::string, std::string>{{"NCCL_NVLS_ENABLE", "0"}});
  CHECK(nccl_variables("SHARP").empty());
  CHECK(nccl_variables("setting 6 (tree)").empty());
}

TEST_CASE("the figures of two protocols come back from times made of them") {
  // LL: 6 us + 14 steps of 1 us at a fifth of 8 GB/s; simple: 20 us + 14 of 3 us at all of it.
  constexpr double b = 8e9;
  ClusterProfile base = test::toy();
  NcclProfile& nccl =
      base.nccl_section.emplace(one_protocol(Seconds(15e-6), Seconds(2e-6), Seconds(5e-6)));
  nccl.ring[0] = ProtocolFigures{Seconds(8e-6), Seconds(0.7e-6), Seconds(5e-6), 0.3, 0.3, {}, {}};
  Measurements m;
  for (const double n : {2.0, 4.0, 8.0})
    for (double bytes = 1024; bytes <= 1 << 30; bytes *= 2) {
      CollectiveMeasurement c;
      c.kind = CollectiveKind::all_reduce;
      c.group.n1 = static_cast<int64_t>(n);
      c.bytes = bytes;
      const double hops = 2 * (n - 1), wire = hops / n * bytes / b;
      c.seconds = std::min(6e-6 + hops * 1e-6 + wire / 0.2, 20e-6 + hops * 3e-6 + wire);
      m.collectives.push_back(c);
    }
  const FitResult fit = fit_profile(m, base, "made");
  const NcclProfile& got = *fit.profile.nccl_section;
  // The fit is held to its base a little.
  CHECK(fit.profile.nvlink.effective().value == Approx(b).epsilon(0.02));
  CHECK(got.ring[0]->nvlink_share == Approx(0.2).epsilon(0.03));
  CHECK(got.ring[0]->nvlink_step.value == Approx(1e-6).epsilon(0.05));
  CHECK(got.ring[0]->start.value == Approx(6e-6).epsilon(0.05));
  CHECK(got.ring[2]->nvlink_step.value == Approx(3e-6).epsilon(0.05));
  CHECK(got.ring[0]->nic_step.value == Approx(5e-6).epsilon(1e-9));  // nothing tells it
  for (const FittedFigure& f : fit.figures) CHECK(f.key.find("nic") == std::string::npos);
  for (const ErrorSummary& e : summarise(fit.residuals)) CHECK(e.worst < 0.05);
}
