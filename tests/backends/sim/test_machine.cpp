// Machine profiles, prices, memory, slow ranks and what a run reports.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "backends/sim/cost/roofline.h"
#include "core/base/error.h"
#include "tests/backends/sim/sim_case.h"
#include "tests/support/temporary_directory.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {

std::string toy_text() {
  std::ifstream file(std::string(TEST_CLUSTERS) + "/toy-8gpu.json");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}
Case phantom(int64_t world) {
  Case c;
  c.scenario = toy_scenario(world);
  c.scenario.training_config.numerics = "none";
  c.profile = ideal();
  return c;
}

}  // namespace

TEST_CASE("every shipped profile reads, with a source for its peaks") {
  for (const char* name : {"dgx-a100-80g", "dgx-a100-40g", "dgx-h100", "toy-8gpu"}) {
    const ClusterProfile p = read_cluster_profile(name, {TEST_CLUSTERS});
    CHECK(p.name == name);
    CHECK(p.gpus_per_node == 8);
    CHECK_FALSE(p.sources.at("gpu.matmul_flop_per_second.bf16").empty());
  }
  const ClusterProfile a100 = read_cluster_profile("dgx-a100-80g", {TEST_CLUSTERS});
  CHECK(a100.gpu.matmul_peak[static_cast<size_t>(DType::bf16)].value == 312e12);
  CHECK(a100.gpu.matmul_peak[static_cast<size_t>(DType::f32)].value == 19.5e12);
  const std::string& text = a100.text;
  const ClusterProfile tf32 = parse_cluster_profile(
      replaced(text, "\"fp32_products\" : \"fp32\"", "\"fp32_products\" : \"tf32\""), "m.json");
  CHECK(tf32.gpu.matmul_peak[static_cast<size_t>(DType::f32)].value == 156e12);
  CHECK_THAT(tf32.sources.at("gpu.matmul_flop_per_second.fp32"), Contains("TF32"));
  CHECK_THROWS_WITH(
      parse_cluster_profile(
          replaced(text, "\"fp32_products\" : \"fp32\"", "\"fp32_products\" : \"fp8\""), "m.json"),
      Contains("gpu.fp32_products: \"fp8\" is not known; legal: fp32, tf32"));
  CHECK(read_cluster_profile("dgx-h100", {TEST_CLUSTERS})
            .gpu.matmul_peak[static_cast<size_t>(DType::bf16)]
            .value == 989.4e12);
}

TEST_CASE("a profile takes from its base what it does not give itself") {
  const ClusterProfile p = read_cluster_profile("aws-p4de", {TEST_CLUSTERS});
  const ClusterProfile base = read_cluster_profile("dgx-a100-80g", {TEST_CLUSTERS});
  CHECK(p.nic.bandwidth.value == 12.5e9);
  CHECK(p.nics_per_node == 4);
  CHECK(p.nvlink.bandwidth.value == base.nvlink.bandwidth.value);
  CHECK(p.gpu.tiles->efficiency == base.gpu.tiles->efficiency);
  CHECK(p.description != base.description);
  // As JSON it is whole: it needs no base any more.
  CHECK(parse_cluster_profile(p.text, "whole.json").gpu.name == p.gpu.name);
  CHECK_THROWS_WITH(parse_cluster_profile("{\"base\": \"dgx-a200\"}", "m.json", {TEST_CLUSTERS}),
                    Contains("m.json: base: \"dgx-a200\" is no machine profile"));
  const TemporaryDirectory directory;
  directory.write("a.json", "{\"base\": \"b\"}");
  directory.write("b.json", "{\"base\": \"a\"}");
  CHECK_THROWS_WITH(read_cluster_profile("a", {directory.path()}), Contains("leads back"));
}

TEST_CASE("every shipped profile can be read") {
  for (const auto& file : std::filesystem::directory_iterator(TEST_CLUSTERS)) {
    if (file.path().extension() != ".json") continue;
    INFO(file.path().string());
    CHECK(read_cluster_profile(file.path().stem().string(), {TEST_CLUSTERS}).gpu.memory.value > 0);
  }
}

TEST_CASE("a profile's GPU may be a file of its own, which profiles built on it share") {
  // a100-4hdr says nothing of its GPU, dgx-a100-40g names another than its base does.
  const ClusterProfile base = read_cluster_profile("dgx-a100-80g", {TEST_CLUSTERS});
  const ClusterProfile same = read_cluster_profile("a100-4hdr", {TEST_CLUSTERS});
  const ClusterProfile other = read_cluster_profile("dgx-a100-40g", {TEST_CLUSTERS});
  CHECK(same.gpu.name == base.gpu.name);
  CHECK(other.gpu.name == "A100-SXM4-40GB");
  CHECK(other.gpu.memory_bandwidth.value == 1555e9);
  CHECK(other.nvlink.bandwidth.value == base.nvlink.bandwidth.value);
  CHECK(parse_cluster_profile(other.text, "whole.json").gpu.memory.value == other.gpu.memory.value);
  CHECK_THROWS_WITH(
      parse_cluster_profile("{\"gpu\": \"a100-81g\"}", std::string(TEST_CLUSTERS) + "/m.json"),
      Contains("m.json:1: gpu: \"a100-81g\": there is no file") && Contains("a100-80g, "));
}

TEST_CASE("faults of a profile are told with file, line, key, value and rule, all at once") {
  std::string text = replaced(toy_text(), "\"value\": 10e9", "\"value\": -1");
  text = replaced(text, "\"kernel_seconds\"", "\"kernel_second\"");
  const auto line =
      1 + std::count(text.begin(),
                     text.begin() + static_cast<ptrdiff_t>(text.find("\"value\": -1")), '\n');
  CHECK_THROWS_WITH(
      parse_cluster_profile(text, "mine.json"),
      Contains("3 errors") &&
          Contains(fmt::format("mine.json:{}: nvlink.bytes_per_second: value -1 must be greater "
                               "than 0",
                               line)) &&
          Contains("gpu.kernel_seconds: is missing") &&
          Contains("gpu.kernel_second: is not a known key; the nearest is gpu.kernel_seconds"));
  CHECK_THROWS_WITH(
      parse_cluster_profile(replaced(toy_text(), "{\"value\": 8, ", "{\"value\": 7.5, "), "m.json"),
      Contains("node.gpus: value 7.5 must be a whole number, 1 or more"));
  CHECK_THROWS_WITH(
      parse_cluster_profile(replaced(toy_text(), "\"source\": \"round", "\"sauce\": \"round"),
                            "m.json"),
      Contains("must be {\"value\": number, \"source\": \"where it is from\"}"));
  CHECK_THROWS_WITH(read_cluster_profile("dgx-a200", {TEST_CLUSTERS}),
                    Contains("\"dgx-a200\"") && Contains("dgx-a100-40g, dgx-a100-80g, dgx-h100,"));
  CHECK_THROWS_WITH(parse_cluster_profile("{", "m.json"), Contains("m.json"));
}

TEST_CASE("a world that does not fit the cluster is refused with both numbers", "[P220]") {
  Case c = phantom(32);
  c.scenario.cluster.nodes = 2;
  CHECK_THROWS_WITH(c.run([](Backend&) {}),
                    Contains("2 nodes of 8 GPUs are 16 GPUs") && Contains("world_size is 32"));
  c.scenario.cluster.nodes = 0;
  c.profile.max_nodes = 2;
  CHECK_THROWS_WITH(c.run([](Backend&) {}), Contains("16 GPUs") && Contains("world_size is 32"));
}

TEST_CASE("a kernel costs the slower of its arithmetic and its bytes") {
  GpuProfile gpu = toy().gpu;
  KernelWork work;
  work.kind = KernelKind::gemm;
  work.dtype = DType::bf16;
  work.flop = 4e12;
  work.bytes = 50e9;
  CHECK(cost(work, gpu).value == 2.0);  // 2 Tflop/s against 100 GB/s: 2 s and 0.5 s
  work.bytes = 300e9;
  CHECK(cost(work, gpu).value == 3.0);
  gpu.bandwidth_efficiency[static_cast<size_t>(KernelKind::gemm)] = 0.5;
  gpu.kernel_seconds = Seconds(0.25);
  CHECK(cost(work, gpu).value == 6.25);
  work.kind = KernelKind::elementwise;  // 0.1 Tflop/s for what is no matrix product
  CHECK(cost(work, gpu).value == 40.25);
  CHECK(copy_cost(Bytes(10e9), toy().pcie).value == Approx(1.00001));
}

TEST_CASE("memory runs out where the profile says, or is reported") {
  Case c = phantom(1);
  c.profile.gpu.memory = Bytes(64 << 20);
  const auto fill = [](Backend& d) {
    Allocator memory(d, false);
    std::vector<Tensor> held;
    for (int i = 0; i < 5; ++i)
      held.push_back(memory.allocate({4 << 20}, DType::f32, MemoryClass::activations, "block"));
    return static_cast<double>(memory.use().peak - d.properties().memory_bytes);
  };
  try {
    c.numbers(fill);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::capacity);
    CHECK_THAT(error.what(), Contains("rank 0") && Contains("\"block\"") && Contains("16.00 MiB"));
  }
  c.scenario.memory.on_exceed = "report";
  CHECK(c.numbers(fill)[0] == 16 << 20);
}

TEST_CASE("a slow rank holds up the others, who are idle meanwhile", "[P204]") {
  Case c = phantom(8);
  c.profile.slow_ranks[3] = 1.5;
  const auto idle = c.numbers([](Backend& d) {
    const Stream s = d.stream("compute");
    const auto world = d.communicator(all_ranks(d), "world");
    Tensor none;
    d.launch(spin(none, 2.0), s);
    world->barrier(s);
    d.synchronize(s);
    CHECK(d.now() == Approx(3.0));
    double busy = 0;
    for (const Interval& i : d.take_profile(false).intervals)
      if (i.stream == s.id) busy += i.end - i.start;
    return d.now() - busy;
  });
  for (size_t rank = 0; rank < 8; ++rank)
    CHECK(idle[rank] == Approx(rank == 3 ? 0 : 1).margin(1e-9));
}

TEST_CASE("intervals merge without detail and keep names, bytes and order with it") {
  phantom(1);
  CHECK(phantom(2)
            .numbers([](Backend& d) {
              const Stream s = d.stream("compute");
              const auto world = d.communicator(all_ranks(d), "world");
              Tensor t;
              t.shape = {1000};
              const auto work = [&] {
                d.phase(Phase::forward, "layer");
                d.launch(spin(t, 1.0), s);
                d.launch(spin(t, 1.0), s);
                d.phase(Phase::backward, "layer");
                d.launch(spin(t, 1.0), s);
                world->all_reduce(t, t, ReduceOp::sum, s, "gradients");
                d.synchronize(s);
              };
              work();
              const Profile merged = d.take_profile(true);
              REQUIRE(merged.intervals.size() == 3);  // no launch overhead: no host time
              CHECK(merged.intervals[0].end - merged.intervals[0].start == Approx(2));
              CHECK(merged.intervals[0].phase == Phase::forward);
              CHECK(merged.intervals[0].name[0] == '\0');
              CHECK(merged.intervals[2].activity == Activity::other_communication);
              work();
              const Profile detailed = d.take_profile(false);
              REQUIRE(detailed.intervals.size() == 4);
              CHECK(std::string(detailed.intervals[0].name) == "spin");
              CHECK(detailed.intervals[0].bytes == 100'000'000'000);
              CHECK(std::string(detailed.intervals[3].name) == "all_reduce");
              CHECK(std::string(detailed.intervals[3].group) == "world");
              CHECK(detailed.intervals[3].bytes == 4000);  // 2 * (n - 1) / n
              CHECK(detailed.intervals[3].order > detailed.intervals[2].order);
              REQUIRE(detailed.traffic.size() == 1);
              CHECK(detailed.traffic[0].kind == "all_reduce");
              CHECK(detailed.traffic[0].purpose == "gradients");
              CHECK(detailed.traffic[0].algorithm == "ring, Simple");
              CHECK(detailed.traffic[0].members == world->size());
              CHECK(detailed.traffic[0].seconds ==
                    Approx(detailed.intervals[3].end - detailed.intervals[3].start));
              CHECK(detailed.traffic[0].bytes == 4000);
              CHECK(detailed.traffic[0].bytes_off_node == 0);
              return 0.0;
            })
            .size() == 2);
}

TEST_CASE("bytes that leave a node are counted apart") {
  const auto off = phantom(16).numbers([](Backend& d) {
    const Stream s = d.stream("comm");
    const auto world = d.communicator(all_ranks(d), "world");
    Tensor t;
    t.shape = {16, 250};
    const auto rows = std::make_shared<const std::vector<int64_t>>(16, 1);
    const auto begin = std::make_shared<const std::vector<int64_t>>(16, 0);
    world->all_to_all_v(t, t, rows, begin, rows, begin, s, "dispatch");
    d.synchronize(s);
    const Profile p = d.take_profile(false);
    CHECK(p.traffic.at(0).bytes == 15 * 1000);
    return static_cast<double>(p.traffic.at(0).bytes_off_node);
  });
  CHECK(off == std::vector<double>(16, 8 * 1000));
}

TEST_CASE("what a pair moves is its sender's, whoever comes first") {
  const auto sent = phantom(2).numbers([](Backend& d) {
    const Stream s = d.stream("comm");
    const auto world = d.communicator(all_ranks(d), "world");
    Tensor t;
    t.shape = {250};  // f32
    for (const int64_t late : {0, 1}) {
      if (d.properties().rank == late) d.host_work(1, Activity::host);
      if (d.properties().rank == 1)
        world->send(t, 0, s, "gradients");
      else
        world->recv(t, 1, s, "gradients");
      d.synchronize(s);
    }
    const Profile p = d.take_profile(false);
    REQUIRE(p.traffic.size() == 1);
    CHECK(p.traffic[0].calls == 2);
    return static_cast<double>(p.traffic[0].bytes);
  });
  CHECK(sent == std::vector<double>{0, 2 * 1000});
}

TEST_CASE("a second simulation in one process is refused") {
  CHECK_THROWS_WITH(in_child([] {
                      phantom(1).run([](Backend&) {});
                      phantom(1).run([](Backend&) {});
                    }),
                    Contains("second simulation"));
}

TEST_CASE("what cannot be run is refused before it starts") {
  const auto refuse = [](const std::function<void(Scenario&)>& change) {
    Case c = phantom(2);
    change(c.scenario);
    c.run([](Backend&) {});
  };
  CHECK_THROWS_WITH(refuse([](Scenario& s) { s.cluster.fidelity = "exact"; }),
                    Contains("\"exact\"") && Contains("fluid, flow"));
  CHECK_THROWS_WITH(refuse([](Scenario& s) { s.cluster.collective_algorithm = "star"; }),
                    Contains("auto, ring, tree"));
  CHECK_THROWS_WITH(refuse([](Scenario& s) { s.cluster.kernels = "mine"; }), Contains("megatron"));
}
