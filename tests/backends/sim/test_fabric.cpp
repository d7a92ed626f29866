// Fabrics between nodes: who shares which links, in both networks.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "backends/sim/cluster/machine.h"
#include "core/base/error.h"
#include "tests/backends/sim/sim_case.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {

/// NICs of 1 GB/s, no latencies; `nodes` nodes of `per_node` GPUs and NICs.
ClusterProfile on(const FabricProfile& fabric, int64_t per_node) {
  ClusterProfile p = ideal();
  p.gpus_per_node = p.nics_per_node = per_node;
  p.fabric = fabric;
  return p;
}

FabricProfile tree(double oversubscription, int64_t group_nodes,
                   FabricKind kind = FabricKind::fat_tree) {
  FabricProfile f;
  f.kind = kind;
  f.oversubscription = oversubscription;
  f.group_nodes = group_nodes;
  return f;
}

using Rows = std::function<int64_t(int64_t from, int64_t to)>;
/// Seconds of one all-to-all of rows of 1 MB.
double exchange(const ClusterProfile& profile, int64_t world, const char* fidelity,
                const Rows& rows) {
  Case c;
  c.scenario = toy_scenario(world);
  c.scenario.training_config.numerics = "none";
  c.scenario.cluster.fidelity = fidelity;
  c.profile = profile;
  return c.numbers([&](Backend& d) {
    const Stream s = d.stream("comm");
    const auto all = d.communicator(all_ranks(d), "world");
    std::vector<int64_t> to, from, begin(static_cast<size_t>(all->size()));
    for (int64_t j = 0; j < all->size(); ++j) {
      to.push_back(rows(all->rank(), j));
      from.push_back(rows(j, all->rank()));
    }
    Tensor t;
    t.shape = {1, 250'000};
    const auto sizes = [](const std::vector<int64_t>& v) {
      return std::make_shared<const std::vector<int64_t>>(v);
    };
    all->all_to_all_v(t, t, sizes(to), sizes(begin), sizes(from), sizes(begin), s, "t");
    d.synchronize(s);
    return d.now();
  })[0];
}

Approx about(double value) { return Approx(value).epsilon(1e-6).margin(3e-9); }

}  // namespace

TEST_CASE("what stays below a leaf does not pass its oversubscribed uplink") {
  // 2 leaves of 2 nodes of 2 GPUs; 4 NICs below a leaf, a quarter of their bandwidth above: 1 GB/s.
  const ClusterProfile p = on(tree(4, 2), 2);
  for (const char* fidelity : {"fluid", "flow"}) {
    const auto to = [&](int64_t distance) {
      return exchange(p, 8, fidelity,
                      [=](int64_t i, int64_t j) { return j == (i + distance) % 8 ? 100 : 0; });
    };
    // Every rank sends 100 MB to its place two nodes on: all of a leaf's 400 MB leave it.
    CHECK(to(4) == about(0.4));
    // To the same place of the next node: half of the nodes' neighbours are below the same leaf.
    CHECK(to(2) == about(0.2));
  }
}

TEST_CASE("on rails of their own messages meet no spine, across rails they do") {
  // 2 nodes of 4 GPUs below the same leaves; a leaf's 2 NICs have 2/8 GB/s to the spine.
  const ClusterProfile p = on(tree(8, 2, FabricKind::rail_optimised), 4);
  for (const char* fidelity : {"fluid", "flow"}) {
    const auto shifted = [&](int64_t rails) {
      return exchange(p, 8, fidelity, [=](int64_t i, int64_t j) {
        return i / 4 != j / 4 && j % 4 == (i % 4 + rails) % 4 ? 100 : 0;
      });
    };
    CHECK(shifted(0) == about(0.1));
    CHECK(shifted(1) == about(0.2 / 0.25));
  }
}

TEST_CASE("collisions of static routing take their share; adaptive routing takes none") {
  FabricProfile f = tree(1, 2);
  f.routing_share = 0.6;
  const Rows far = [](int64_t i, int64_t j) { return j == (i + 4) % 8 ? 100 : 0; };
  for (const char* fidelity : {"fluid", "flow"}) {
    CHECK(exchange(on(f, 2), 8, fidelity, far) == about(0.1 / 0.6));
    CHECK(exchange(on(tree(1, 2), 2), 8, fidelity, far) == about(0.1));
  }
}

TEST_CASE("a dragonfly's groups send over one link, or over all of them") {
  // 3 groups of 2 nodes of 1 GPU: 2 GB/s leave a group, half of it to each other group.
  FabricProfile f = tree(1, 2, FabricKind::dragonfly);
  const Rows next_group = [](int64_t i, int64_t j) { return j == (i + 2) % 6 ? 100 : 0; };
  const Rows everybody = [](int64_t i, int64_t j) { return i / 2 != j / 2 ? 25 : 0; };
  for (const char* fidelity : {"fluid", "flow"}) {
    CHECK(exchange(on(f, 1), 6, fidelity, next_group) == about(0.1));
    f.minimal_routing = true;
    CHECK(exchange(on(f, 1), 6, fidelity, next_group) == about(0.2));
    CHECK(exchange(on(f, 1), 6, fidelity, everybody) == about(0.1));
    f.minimal_routing = false;
  }
}

TEST_CASE("on a torus neighbours have a link of their own, far nodes share those between") {
  // 4 x 2 nodes of 1 GPU, links of 0.5 GB/s.
  FabricProfile f;
  f.kind = FabricKind::torus;
  f.torus = {4, 2, 1};
  f.torus_link = BytesPerSecond(0.5e9);
  const auto x = [](int64_t i, int64_t by) { return i / 4 * 4 + (i + by) % 4; };
  for (const char* fidelity : {"fluid", "flow"}) {
    const auto along_x = [&](int64_t by) {
      return exchange(on(f, 1), 8, fidelity,
                      [=](int64_t i, int64_t j) { return j == x(i, by) ? 100 : 0; });
    };
    CHECK(along_x(1) == about(0.2));
    CHECK(along_x(3) == about(0.2));  // the other way round
    CHECK(along_x(2) == about(0.4));  // each link carries two messages
  }
  Case c;
  c.scenario = toy_scenario(9);
  c.profile = on(f, 1);
  CHECK_THROWS_WITH(c.run([](Backend&) {}), Contains("4 x 2 x 1 nodes, but 9 are needed"));
}

TEST_CASE("a platform file of the user's is the fabric") {
  // Two nodes below each of two switches, 2 GB/s of backbone between these: 4 NICs share it.
  const std::string file = "fabric-test-platform.xml";
  std::ofstream(file) << R"(<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <zone id="z" routing="Full">
    <host id="h9" speed="1Gf"/><host id="h10" speed="1Gf"/>
    <host id="h11" speed="1Gf"/><host id="h12" speed="1Gf"/>
    <link id="backbone" bandwidth="2GBps" latency="1us"/>
    <link id="left" bandwidth="100GBps" latency="1us"/>
    <route src="h9" dst="h10"><link_ctn id="left"/></route>
    <route src="h11" dst="h12"><link_ctn id="left"/></route>
    <route src="h9" dst="h11"><link_ctn id="backbone"/></route>
    <route src="h9" dst="h12"><link_ctn id="backbone"/></route>
    <route src="h10" dst="h11"><link_ctn id="backbone"/></route>
    <route src="h10" dst="h12"><link_ctn id="backbone"/></route>
  </zone>
</platform>)";
  FabricProfile f;
  f.kind = FabricKind::platform;
  f.platform_file = std::filesystem::absolute(file).string();
  for (const char* fidelity : {"fluid", "flow"}) {
    // 8 GPUs of 2 a node send 100 MB: below a switch the NICs' 0.1 s; across, 800 MB through 2 GB/s
    // (the file's route is the same link in both directions).
    CHECK(exchange(on(f, 2), 8, fidelity,
                   [](int64_t i, int64_t j) { return j == (i ^ 2) ? 100 : 0; }) == about(0.1));
    CHECK(exchange(on(f, 2), 8, fidelity,
                   [](int64_t i, int64_t j) { return j == (i ^ 4) ? 100 : 0; }) == about(0.4));
  }
  Case c;
  c.scenario = toy_scenario(10);
  c.profile = on(f, 2);
  CHECK_THROWS_WITH(c.run([](Backend&) {}), Contains("has 4 hosts, but 5 nodes are needed"));
  c.profile.fabric.platform_file = "none.xml";
  CHECK_THROWS_WITH(c.run([](Backend&) {}), Contains("none.xml\" is no file"));
  c.profile.fabric.platform_file = f.platform_file;
  std::ofstream(file) << "<platform>";
  CHECK_THROWS_WITH(c.run([](Backend&) {}), Contains("cannot be read by SimGrid"));
  std::filesystem::remove(file);
}

TEST_CASE("every way over a fabric is a way of its links") {
  for (const FabricKind kind : {FabricKind::fat_tree, FabricKind::rail_optimised,
                                FabricKind::dragonfly, FabricKind::torus}) {
    FabricProfile f = tree(2, 3, kind);
    f.torus = {3, 2, 2};
    f.torus_link = BytesPerSecond(1e9);
    for (const bool minimal : {false, true}) {
      f.minimal_routing = minimal && kind == FabricKind::dragonfly;
      const Machine machine(on(f, 2), 24);
      std::vector<int64_t> route;
      for (int64_t i = 0; i < 24; ++i)
        for (int64_t j = 0; j < 24; ++j) {
          machine.route(i, j, route);
          for (const int64_t port : route) {
            REQUIRE((port >= 0 && port < machine.ports()));
            CHECK(machine.bandwidth(port).value > 0);
          }
          if (i / 2 == j / 2) continue;
          CHECK(route.front() == machine.nic(i, Direction::up));
          CHECK(route.back() == machine.nic(j, Direction::down));
          if (kind == FabricKind::torus) CHECK(route.size() > 2);
        }
    }
  }
}

TEST_CASE("a profile says which fabric it has; faults are named") {
  const auto parse = [](const std::string& fabric) {
    return parse_cluster_profile(R"({"gpu": {}, "fabric": )" + fabric + "}", "f.json");
  };
  CHECK_THROWS_WITH(parse(R"({"kind": "mesh"})"),
                    Contains("fabric.kind: \"mesh\" is not known; legal: fat-tree, "
                             "rail-optimised, dragonfly, torus, platform"));
  CHECK_THROWS_WITH(parse(R"({"kind": "platform"})"), Contains("fabric.file: is missing"));
  CHECK_THROWS_WITH(parse(R"({"oversubscription": {"value": 0.5, "source": "s"}})"),
                    Contains("fabric.oversubscription: must be 1 (non-blocking) or more"));
  CHECK_THROWS_WITH(
      parse(R"({"oversubscription": {"value": 2, "source": "s"}, "routing": "random"})"),
      Contains("fabric.routing: \"random\" is not known; legal: adaptive, static"));
  CHECK_THROWS_WITH(
      parse(R"({"oversubscription": {"value": 2, "source": "s"}, "routing": "static"})"),
      Contains("fabric.static_share: is missing"));
  CHECK_THROWS_WITH(parse(R"({"kind": "torus"})"), Contains("fabric.torus.x: is missing") &&
                                                       Contains("fabric.torus.bytes_per_second"));
}
