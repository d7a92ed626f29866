// What follows from what a machine has.
#include <catch2/catch.hpp>

#include "backends/cuda/probe/findings.h"

using namespace moetwin;
using Catch::Matchers::Contains;

namespace {

// Two H100 in a good container.
Findings good() {
  Findings f;
  f.host = "n1";
  f.built_with_cuda = f.nvml = true;
  f.driver_version = "580.95";
  f.driver_cuda = 13000;
  NvmlGpu gpu;
  gpu.name = "NVIDIA H100 80GB HBM3";
  gpu.pci = "00000000:1B:00.0";
  gpu.memory_bytes = int64_t{80} << 30;
  gpu.major = 9;
  gpu.nvlinks = 18;
  gpu.temperature_celsius = 41;
  gpu.power_watts = 120;
  gpu.power_limit_watts = 700;
  f.gpus = {gpu, gpu};
  f.nccl_version = 22809;
  f.nccl_library = "libnccl.so.2";
  f.interfaces = {{"lo", true, true, "127.0.0.1"}, {"eno1", true, false, "10.0.0.1"}};
  f.infiniband = {{"mlx5_0", "ACTIVE", "400 Gb/sec (4X NDR)", 1}};
  f.peer_memory = true;
  f.shm_bytes = int64_t{8} << 30;
  return f;
}

std::string text(const Findings& f) { return diagnosis_text(diagnose(f)); }

}  // namespace

TEST_CASE("a good machine has nothing bad") {
  CHECK(diagnose(good()).can_run);
  CHECK_THAT(text(good()), Contains("NVIDIA H100 80GB HBM3 at 00000000:1B:00.0") &&
                               Contains("18 NVLinks") && Contains("41 C, 120 of 700 W") &&
                               Contains("NCCL 2.28.9") &&
                               Contains("mlx5_0 port 1: ACTIVE, 400 Gb/sec") &&
                               Contains("works with up to 2 ranks on this node") &&
                               !Contains("BAD") && !Contains("note"));
}

TEST_CASE("without GPU, driver, NCCL or CUDA in the build each is said with what to do") {
  Findings f;
  f.nvml_error = "libnvidia-ml.so.1: cannot open shared object file";
  f.nccl_error = "libnccl.so.2: cannot open";
  CHECK_FALSE(diagnose(f).can_run);
  CHECK_THAT(text(f), Contains("BAD  no NVIDIA driver: libnvidia-ml.so.1") &&
                          Contains("built without CUDA") && Contains("no NCCL") &&
                          Contains("ok   --backend sim works") &&
                          Contains("will not work: load the NVIDIA driver") &&
                          Contains("will not work: install NCCL"));
  f = good();
  f.gpus[0].major = f.gpus[1].major = 7;
  CHECK_FALSE(diagnose(f).can_run);
  CHECK_THAT(text(f), Contains("compute capability 8.0"));
  f = good();
  f.nccl_version = 21800;
  CHECK_THAT(text(f), Contains("update NCCL"));
}

TEST_CASE("what slows a machine down or stops NCCL") {
  Findings f = good();
  f.gpus[1].throttle_reasons = 0x44;
  CHECK_THAT(text(f), Contains("note NVIDIA H100") &&
                          Contains("slowed down by: power limit, thermal (hardware)"));
  f = good();
  f.shm_bytes = int64_t{64} << 20;
  CHECK_THAT(text(f), Contains("BAD  /dev/shm of 64") && Contains("--shm-size"));
  f = good();
  f.gpus[0].nvlinks = f.gpus[1].nvlinks = 0;
  CHECK_THAT(text(f), Contains("no NVLink"));
  f.gpus[0].nvlinks = 18;
  CHECK_THAT(text(f), Contains("only 1 of 2 GPUs have NVLinks"));
  f = good();
  f.gpus[0].mig = true;
  CHECK_THAT(text(f), Contains("MIG"));
  f = good();
  f.infiniband.clear();
  CHECK_THAT(text(f), Contains("TCP sockets"));
  f = good();
  f.peer_memory = false;
  CHECK_THAT(text(f), Contains("nvidia_peermem"));
  f.locked_memory_bytes = 1 << 20;
  CHECK_THAT(text(f), Contains("ulimit -l unlimited"));
  f = good();
  f.socket_interface = "eth9";
  CHECK_THAT(text(f), Contains("NCCL_SOCKET_IFNAME=eth9 selects no"));
  f.nccl_variables = {{"NCCL_ALGO", "Tree"}};
  CHECK_THAT(text(f), Contains("NCCL_ALGO=Tree is set"));
}

TEST_CASE("NVML is asked through whatever library has its names") {
  const Nvml nvml(FAKE_NVML);
  REQUIRE(nvml.there());
  CHECK(nvml.driver_version() == "580.1");
  CHECK(nvml.cuda_version() == 13000);
  const auto gpus = nvml.gpus();
  REQUIRE(gpus.size() == 2);
  CHECK(gpus[1].name == "Fake GPU");
  CHECK(gpus[1].pci == "00000000:02:00.0");
  CHECK(gpus[1].memory_bytes == int64_t{80} << 30);
  CHECK(gpus[1].nvlinks == 4);
  CHECK(gpus[1].temperature_celsius == 82);
  CHECK(gpus[1].uuid.empty());  // a function that the library lacks
  NvmlGpu one;
  CHECK(nvml.sample("0000:02:00.0", one));
  CHECK(one.temperature_celsius == 82);
  CHECK_FALSE(nvml.sample("0000:07:00.0", one));
  CHECK_FALSE(Nvml("no-such-library.so").there());
  CHECK_THAT(Nvml("no-such-library.so").error(), Contains("no-such-library.so"));
}

TEST_CASE("this machine can be looked at") {
  const Findings f = look_around(false);
  CHECK_FALSE(f.host.empty());
  CHECK(f.memory_bytes > 0);
  CHECK(f.nvml == f.nvml_error.empty());
  CHECK_FALSE(text(f).empty());
}
