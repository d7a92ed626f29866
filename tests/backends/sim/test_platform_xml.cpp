// The exported platform as SimGrid itself reads it: between any two GPUs the latency of a step and
// the bandwidth of the slowest port that the model has there.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <simgrid/s4u.hpp>
#include <vector>

#include "backends/sim/export/platform_xml.h"
#include "core/base/error.h"
#include "tests/backends/sim/sim_case.h"
#include "tests/support/in_child.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {

namespace s4u = simgrid::s4u;

/// By pair [a * world + b], as SimGrid finds it; the speed of host 0 at the end.
std::vector<double> read_back(const std::string& xml, int64_t world) {
  return in_child([&] {
    const auto folder = std::filesystem::temp_directory_path() / "moetwin-platform-XXXXXX";
    std::string made = folder.string();
    if (!mkdtemp(made.data())) throw std::runtime_error("no folder");
    const std::string file = made + "/platform.xml";
    std::ofstream(file) << xml;
    std::vector<std::string> words{"test", "--log=root.thres:critical"};
    std::vector<char*> arguments{words[0].data(), words[1].data(), nullptr};
    int count = 2;
    s4u::Engine engine(&count, arguments.data());
    engine.load_platform(file);
    std::filesystem::remove_all(made);
    std::vector<double> out;
    for (int64_t a = 0; a < world; ++a)
      for (int64_t b = 0; b < world; ++b) {
        double latency = 0, bandwidth = 1e300, links = 0;
        std::vector<s4u::Link*> route;
        if (a != b)
          s4u::Host::by_name("gpu-" + std::to_string(a))
              ->route_to(s4u::Host::by_name("gpu-" + std::to_string(b)), route, &latency);
        for (const s4u::Link* link : route) {
          bandwidth = std::min(bandwidth, link->get_bandwidth());
          links += link->get_sharing_policy() != s4u::Link::SharingPolicy::FATPIPE;
        }
        out.insert(out.end(), {latency, bandwidth, links});
      }
    out.push_back(s4u::Host::by_name("gpu-0")->get_speed());
    return out;
  });
}

void compare(ClusterProfile profile, int64_t world) {
  const Machine machine(std::move(profile), world);
  const std::vector<double> read = read_back(platform_xml(machine, FlopPerSecond(2e12)), world);
  std::vector<int64_t> ports;
  for (int64_t a = 0; a < world; ++a)
    for (int64_t b = 0; b < world; ++b) {
      if (a == b) continue;
      const double* got = &read[static_cast<size_t>(3 * (a * world + b))];
      machine.route(a, b, ports);
      double slowest = 1e300;
      for (const int64_t port : ports) slowest = std::min(slowest, machine.bandwidth(port).value);
      INFO(a << " to " << b);
      CHECK(got[0] == Approx(machine.latency(a, b).value));
      CHECK(got[1] == Approx(slowest));
      CHECK(got[2] == static_cast<double>(ports.size()));
    }
  CHECK(read.back() == Approx(2e12));
}

ClusterProfile dgx() { return read_cluster_profile("dgx-a100-80g", {TEST_CLUSTERS}); }

}  // namespace

TEST_CASE("SimGrid loads the exported cluster, with the model's latencies and bandwidths") {
  compare(dgx(), 8);   // one node
  compare(dgx(), 20);  // two whole nodes and half of one
  ClusterProfile shared = dgx();
  shared.nics_per_node = 2;
  compare(shared, 16);
}

TEST_CASE("links of a fabric are part of the exported routes") {
  ClusterProfile tapered = dgx();
  tapered.fabric.oversubscription = 4;
  tapered.fabric.group_nodes = 2;
  compare(tapered, 32);
  ClusterProfile torus = dgx();
  torus.fabric.kind = FabricKind::torus;
  torus.fabric.torus = {2, 2, 1};
  torus.fabric.torus_link = BytesPerSecond(10e9);
  compare(torus, 32);
  const Machine large(tapered, 1024);
  CHECK_THROWS_WITH(platform_xml(large, FlopPerSecond(1)),
                    Contains("fat-tree") && Contains("at most 512 GPUs, there are 1024"));
  // Where nothing is held up there is a zone for each node.
  CHECK_THAT(platform_xml(Machine(dgx(), 1024), FlopPerSecond(1)), Contains("node-127-out"));
  CHECK_THROWS_WITH(platform_xml(Machine(dgx(), 8192), FlopPerSecond(1)),
                    Contains("at most 512 nodes, there are 1024"));
}
