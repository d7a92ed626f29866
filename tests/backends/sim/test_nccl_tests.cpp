#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "backends/sim/calibration/fit.h"
#include "backends/sim/calibration/gemm_csv.h"
#include "backends/sim/calibration/nccl_tests.h"
#include "core/base/error.h"
#include "tests/backends/sim/sim_case.h"

using namespace moetwin;
using Catch::Contains;

namespace {

/// The device lines of nccl-tests: `ranks` GPUs on `nodes` nodes.
std::string devices(int ranks, int nodes) {
  std::string text =
      "# nThread 1 nGpus 1 minBytes 1024 maxBytes 1073741824 step: 2(factor)\n#\n"
      "# Using devices\n";
  for (int r = 0; r < ranks; ++r)
    text += fmt::format("#  Rank {:2} Group  0 Pid  {} on node-{} device  {} [0x07] NVIDIA A100\n",
                        r, 1000 + r, r / (ranks / nodes), r % (ranks / nodes));
  return text +
         "#\n#       size         count      type   redop    root     time   algbw   busbw "
         "#wrong     time   algbw   busbw #wrong\n";
}

/// time = alpha + size * factor / beta.
std::string row(double bytes, double factor, double alpha, double beta, const char* redop) {
  const double seconds = alpha + bytes * factor / beta;
  return fmt::format(
      "{:12.0f} {:12.0f}     float {:>6}      -1 {:9.4f} {:7.4f} {:7.4f}      0 "
      "{:9.4f} {:7.4f} {:7.4f}      0\n",
      bytes, bytes / 4, redop, seconds * 1e6, bytes / seconds / 1e9, bytes * factor / seconds / 1e9,
      2 * seconds * 1e6, bytes / seconds / 2e9, bytes * factor / seconds / 2e9);
}

std::string table(double factor, double alpha, double beta, const char* redop = "sum") {
  std::string text;
  for (double bytes = 1 << 16; bytes <= 1 << 30; bytes *= 2)
    text += row(bytes, factor, alpha, beta, redop);
  return text;
}

NcclTestsLog read(const std::string& text, const std::string& name,
                  const NcclTestsOptions& options = {}) {
  return read_nccl_tests(text, name, 8, options);
}

}  // namespace

TEST_CASE("a log made from latency and bandwidth gives these back") {
  constexpr double alpha = 42e-6, beta = 7.5e9;
  const NcclTestsLog log =
      read(devices(8, 1) + table(2 * 7.0 / 8, alpha, beta), "runs/all_reduce_8.log");
  CHECK(log.kind == CollectiveKind::all_reduce);
  CHECK(log.ranks == 8);
  CHECK(log.nodes == 1);
  CHECK(log.device == "NVIDIA A100");
  CHECK(log.problems.empty());
  REQUIRE(log.measurements.size() == 15);
  Measurements m;
  m.collectives = log.measurements;
  const FitResult fit = fit_profile(m, test::toy(), "made");
  REQUIRE(fit.collectives.size() == 1);
  CHECK(fit.collectives[0].latency_seconds == Approx(alpha).epsilon(0.001));
  CHECK(fit.collectives[0].bus_bytes_per_second == Approx(beta).epsilon(0.001));
  CHECK(fit.profile.nvlink.effective().value == Approx(beta).epsilon(0.01));
  // One curve tells only the sum of the fixed time and 14 steps.
  CHECK(fit.profile.collective_seconds.value + 14 * fit.profile.nvlink.latency.value ==
        Approx(alpha).epsilon(0.01));
}

TEST_CASE("several nodes, in-place columns, sizes") {
  const std::string text = devices(16, 2) + table(15.0 / 16, 30e-6, 9e9, "none");
  NcclTestsOptions options;
  options.least_bytes = 1 << 20;
  options.most_bytes = 1 << 24;
  const NcclTestsLog log = read(text, "all_gather=out.txt", options);
  CHECK(log.kind == CollectiveKind::all_gather);
  CHECK(log.gpus_per_node == 8);
  REQUIRE(log.measurements.size() == 5);
  CHECK(log.measurements[0].group == Group{0, 2, 8, 8, 1});
  options.in_place = true;
  const NcclTestsLog in_place = read(text, "all_gather=out.txt", options);
  CHECK(in_place.measurements[0].seconds == Approx(2 * log.measurements[0].seconds).epsilon(1e-4));
  const NcclTestsLog exchange = read(text, "alltoall_perf.txt");
  CHECK(exchange.kind == CollectiveKind::all_to_all_v);
  CHECK(exchange.measurements[0].pair_bytes.size() == 256);
  CHECK(exchange.measurements[0].pair_bytes[3] == 65536.0 / 16);
}

TEST_CASE("prefixes of mpirun, old columns without root, and what is no table") {
  // As NCCL 2.7's nccl-tests print it under mpirun --tag-output.
  const std::string text =
      "[1,0]<stdout>:# Using devices\n"
      "[1,0]<stdout>:#   Rank  0 Pid  65741 on node-000000 device  0 [0x00] A100-SXM4-40GB\n"
      "[1,0]<stdout>:#   Rank  1 Pid  65742 on node-000000 device  1 [0x00] A100-SXM4-40GB\n"
      "Loading modules ... 12 done\n"
      "2024-10-15 11:21:15 started\n"
      "[1,0]<stdout>:        1024           256     float     sum    10.00    0.10    0.10    N/A  "
      "  34.47    0.03    0.03    N/A\n"
      "[1,0]<stdout>:        2048           512     float     sum    20.00    0.10    0.10  2e-07 "
      "   35.59    0.06    0.06  2e-07\n"
      "[1,0]<stdout>:# Out of bounds values : 0 OK\n";
  const NcclTestsLog log = read(text, "nccl_tests_all_reduce_a100.log");
  CHECK(log.problems.empty());
  REQUIRE(log.measurements.size() == 2);
  CHECK(log.measurements[1].bytes == 2048);
  CHECK(log.measurements[1].seconds == Approx(20e-6));
}

TEST_CASE("bad lines are named by file and line and left out") {
  const std::string good = row(1 << 20, 1.75, 10e-6, 5e9, "sum");
  const std::string text =
      devices(8, 1) + good +
      "     2097152        524288     float     sum      -1    87.70\n" +  // torn off
      "     4194304       1048576     float     sum      -1   100.00   41.94   10.00      0\n" +
      "     8388608       2097152     float     sum      -1   200.00   41.94   73.40      3   "
      "200.00   41.94   73.40      0\n" +
      "           0             0     float     sum      -1     0.00    0.00    0.00      0\n";
  const NcclTestsLog log = read(text, "all_reduce.log");
  CHECK(log.measurements.size() == 1);
  REQUIRE(log.problems.size() == 3);
  // Three lines before the eight of the ranks, two after, then the table.
  CHECK_THAT(log.problems[0], Contains("all_reduce.log:15") && Contains("is no row of the table"));
  CHECK_THAT(log.problems[1], Contains("all_reduce.log:16") && Contains("another collective?"));
  CHECK_THAT(log.problems[2], Contains("all_reduce.log:17") && Contains("3 elements were wrong"));
}

TEST_CASE("what cannot be told is refused with what to do") {
  const std::string rows = table(1.75, 10e-6, 5e9);
  CHECK_THROWS_WITH(read(devices(8, 1) + rows, "run.log"), Contains("all_reduce=FILE"));
  CHECK_THROWS_WITH(read(rows, "all_reduce.log"), Contains("--ranks N"));
  NcclTestsOptions options;
  options.ranks = 8;
  CHECK(read(rows, "all_reduce.log", options).gpus_per_node == 8);
  options.ranks = 7, options.nodes = 2;
  CHECK_THROWS_WITH(read(rows, "all_reduce.log", options), Contains("unevenly"));
  CHECK_THROWS_WITH(read(devices(16, 1) + rows, "all_reduce.log"), Contains("another --base"));
  CHECK_THROWS_WITH(read(devices(8, 1), "all_reduce.log"), Contains("no row of all_reduce"));
  CHECK_THROWS_WITH(read(rows, "scan=x.log"), Contains("\"scan\" before = is no collective"));
  // A newer nccl-tests says which one it is.
  CHECK(read("# Collective test starting: all_reduce_perf\n" + devices(8, 1) + rows, "run.log")
            .kind == CollectiveKind::all_reduce);
}

TEST_CASE("products from a table") {
  std::vector<std::string> problems;
  const std::vector<KernelMeasurement> rows = read_gemm_csv(
      "id,op,gpu,dtype,M,N,K,time_ms,tflops\n"
      "a,gemm,NVIDIA A100,bf16,1024,1024,1024,0.02,\n"
      "b,attention,NVIDIA A100,bf16,,,,0.02,\n"
      "c,gemm,\"NVIDIA H100, 80 GB\",bf16,1024,1024,1024,0.01,\n"
      "d,gemm,NVIDIA A100,fp16,2048,1024,1024,,100\n"
      "e,gemm,NVIDIA A100,fp8,1024,1024,1024,0.02,\n"
      "f,gemm,NVIDIA A100,bf16,1024,0,1024,0.02,\n",
      "table.csv", "A100", problems);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].seconds == Approx(20e-6));
  CHECK(rows[0].kernels[0].flop == 2.0 * 1024 * 1024 * 1024);
  CHECK(rows[0].kernels[0].bytes == 3.0 * 2 * 1024 * 1024);
  CHECK(rows[1].seconds == Approx(2.0 * 2048 * 1024 * 1024 / 100e12));
  REQUIRE(problems.size() == 2);
  CHECK_THAT(problems[0], Contains("table.csv:6") && Contains("fp8"));
  CHECK_THAT(problems[1], Contains("table.csv:7"));
  CHECK_THROWS_WITH(read_gemm_csv("m,n,k\n", "x.csv", "", problems),
                    Contains("no column \"dtype\""));
  CHECK_THROWS_WITH(read_gemm_csv("m,n,k,dtype,tflops\n", "x.csv", "", problems),
                    Contains("no row of a product"));
}
