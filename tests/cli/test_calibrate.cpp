#include <json/reader.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <sstream>

#include "backends/sim/cluster/profile.h"
#include "tests/cli/run.h"
#include "tests/support/in_child.h"

using namespace moetwin;
using Catch::Contains;

namespace {

Json::Value parsed(const std::string& text) {
  Json::Value json;
  std::istringstream(text) >> json;
  return json;
}

/// all_reduce of 8 GPUs: 50 us and 200 GB/s of bus bandwidth.
std::string all_reduce_log() {
  std::ostringstream log;
  for (int r = 0; r < 8; ++r)
    log << "#  Rank  " << r << " Pid  " << 100 + r << " on n1 device  " << r << " [0x0] GPU\n";
  for (double bytes = 1 << 16; bytes <= 1 << 30; bytes *= 4) {
    const double us = 50 + bytes * 1.75 / 200e9 * 1e6;
    log << static_cast<long>(bytes) << " " << static_cast<long>(bytes / 4) << " float sum -1 " << us
        << " " << bytes / us / 1e3 << " " << bytes * 1.75 / us / 1e3 << " 0\n";
  }
  return log.str();
}

}  // namespace

TEST_CASE("calibrate fits a log and writes a profile that loads") {
  const Folder folder("calibrate");
  const std::string log = folder.write("all_reduce_perf.txt", all_reduce_log());
  const std::string out = folder.file("links.json");
  const Ran ran = run({"calibrate", "--from", "nccl-tests", log, "--base", "toy-8gpu", "-o", out});
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK_THAT(ran.out, Contains("all_reduce of 8 on 1 node") && Contains("200.00 GB/s") &&
                          Contains("50.0 us") && Contains("Modelled against measured"));
  const ClusterProfile profile = read_cluster_profile(out, {});
  CHECK(profile.nvlink.effective().value == Approx(200e9).epsilon(0.01));
  CHECK(profile.collective_seconds.value + 14 * profile.nvlink.latency.value ==
        Approx(50e-6).epsilon(0.01));
  CHECK_THAT(folder.read("links.json"), Contains("nccl-tests (all_reduce of 8 GPUs on 1 node"));
  // A base with figures for each protocol keeps near them; its times still are the log's.
  const Json::Value by_protocol = parsed(
      run({"calibrate", "--from", "nccl-tests", log, "--base", "dgx-a100-80g", "--json"}).out);
  for (const Json::Value& residual : by_protocol["residuals"])
    CHECK(std::abs(residual["error"].asDouble()) < 0.06);
  CHECK(by_protocol["figures"].isMember("nccl.ring.ll128.start_seconds"));
  CHECK_FALSE(by_protocol["figures"].isMember("nccl.tree.ll.start_seconds"));
  const Json::Value json = parsed(run({"calibrate", "--from", "nccl-tests", log, "--json"}).out);
  CHECK(json["collectives"][0]["bus_bytes_per_second"].asDouble() == Approx(200e9).epsilon(0.001));
  CHECK(json["residuals"].size() == 8);
}

TEST_CASE("calibrate measures a modelled machine and refits what it wrote") {
  const Folder folder("calibrate-sim");
  const std::string raw = folder.file("raw.json");
  const std::string text = test::in_child([&] {
    const Ran ran = run({"calibrate", "--cluster", "toy-8gpu", "--raw", raw, "--json"});
    return std::to_string(ran.code) + "\n" + (ran.code ? ran.err : ran.out);
  });
  REQUIRE(text.substr(0, 2) == "0\n");
  const Json::Value figures = parsed(text.substr(2))["figures"];
  // toy-8gpu: 1 us a launch, memory 100 GB/s, NVLink 10 GB/s.
  CHECK(figures["gpu.launch_overhead_seconds"]["value"].asDouble() == Approx(1e-6).epsilon(0.01));
  CHECK(figures["gpu.bandwidth_efficiency.copy"]["value"].asDouble() == Approx(1).epsilon(0.02));
  CHECK(figures["nvlink.efficiency"]["value"].asDouble() == Approx(1).epsilon(0.02));
  const Ran again =
      run({"calibrate", "--from", "measurements", raw, "--base", "toy-8gpu", "--json"});
  REQUIRE(again.code == 0);
  CHECK(parsed(again.out)["figures"]["nic.efficiency"] == figures["nic.efficiency"]);
}

TEST_CASE("calibrate refuses what it cannot use") {
  const Folder folder("calibrate-bad");
  CHECK(run({"calibrate", "--from", "nccl-tests"}).code == 2);
  const Ran absent = run({"calibrate", "--from", "nccl-tests", "no-such.log"});
  CHECK(absent.code == 2);
  CHECK_THAT(absent.err, Contains("cannot read 'no-such.log'"));
  const Ran stray = run({"calibrate", "all_reduce.log"});
  CHECK(stray.code == 2);
  CHECK_THAT(stray.err, Contains("--from nccl-tests"));
  const std::string log = folder.write("all_reduce.log", all_reduce_log());
  const Ran size = run({"calibrate", "--from", "nccl-tests", log, "--min-bytes", "lots"});
  CHECK(size.code == 2);
  CHECK_THAT(size.err, Contains("--min-bytes \"lots\"") && Contains("64K"));
  const Ran none = run({"calibrate", "--from", "nccl-tests", log, "--min-bytes", "8G"});
  CHECK(none.code == 2);
  CHECK_THAT(none.err, Contains("no row of all_reduce is left"));
  const std::string json = folder.write("m.json", "{\"schema\": \"other\"}");
  const Ran wrong = run({"calibrate", "--from", "measurements", json});
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, Contains("moetwin-measurements/1"));
}
