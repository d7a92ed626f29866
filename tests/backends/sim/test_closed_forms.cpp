// Collectives alone on the machine against closed forms made of steps and bytes, and laws that hold
// on any machine.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "backends/sim/collective/plan.h"
#include "core/base/error.h"
#include "tests/backends/sim/sim_case.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

constexpr double kNvlink = 200e9, kNic = 20e9;  // effective rates
constexpr double kSizes[] = {1024, 65536, 1 << 20, 64 << 20, 1 << 30};

ProtocolFigures steps(double start, double nvlink, double nic, double nvlink_share,
                      double nic_share) {
  return {Seconds(start), Seconds(nvlink), Seconds(nic), nvlink_share,
          nic_share,      Seconds(0.5e-6), Seconds(2e-6)};
}
// One protocol of each algorithm: of two the closed form would be the smaller.
const ProtocolFigures kRing = steps(10e-6, 2e-6, 6e-6, 1, 1);
const ProtocolFigures kTree = steps(12e-6, 3e-6, 9e-6, 0.5, 0.8);
const ProtocolFigures kNvls = steps(20e-6, 4e-6, 15e-6, 0.9, 0.75);
const ProtocolFigures kPairs = steps(30e-6, 1e-6, 5e-6, 0.8, 0.9);

ClusterProfile machine_of(int64_t gpus_per_node) {
  ClusterProfile p = toy();
  p.gpus_per_node = p.nics_per_node = gpus_per_node;
  p.gpu.launch_overhead_seconds = Seconds(0);
  p.gpu.memory_bandwidth = BytesPerSecond(1e18);  // rows to oneself take no time
  p.nvlink.bandwidth = BytesPerSecond(kNvlink);
  p.nic.bandwidth = BytesPerSecond(kNic);
  const auto simple = static_cast<size_t>(Protocol::simple);
  NcclProfile& nccl = p.nccl_section.emplace();
  nccl.ring[simple] = kRing, nccl.tree[simple] = kTree;
  nccl.nvls[simple] = kNvls, nccl.pairs[simple] = kPairs;
  return p;
}

struct Group8 {  // nodes x 8 members, or one node of n
  int64_t nodes, per_node;
};

double alone(const ClusterProfile& profile, const Group8& g, CollectiveKind kind, double bytes,
             const std::string& algorithm = "auto", const std::vector<double>& pairs = {},
             const TokenCopies& copies = {}, bool of_tokens = true) {
  const int64_t n = g.nodes * g.per_node;
  const Machine machine(profile, n);
  CollectiveShape shape;
  shape.kind = kind;
  shape.group.n1 = n;
  const NodesOfGroup on(shape.group, machine);
  shape.on = &on;
  shape.bytes = bytes;
  shape.to = n - 1;
  shape.pair_bytes = pairs;
  shape.of_tokens = of_tokens;
  if (kind == CollectiveKind::all_to_all_v && pairs.empty())
    shape.pair_bytes.assign(static_cast<size_t>(n * n), bytes / static_cast<double>(n));
  Plan plan;
  make_plan(shape, machine, nccl_choice(algorithm, {}, copies), plan);
  return plan.alone(machine).value;
}

double log2_up(int64_t n) { return std::ceil(std::log2(static_cast<double>(n))); }

Approx about(double value) { return Approx(value).epsilon(0.01); }

}  // namespace

TEST_CASE("rings: start, steps of latency and a piece each, no faster than the busiest port") {
  for (const Group8 g : {Group8{1, 2}, {1, 8}, {1, 64}, {2, 8}, {16, 8}, {128, 8}, {1024, 1}}) {
    const auto n = static_cast<double>(g.nodes * g.per_node);
    const ClusterProfile profile = machine_of(g.per_node);
    for (const double s : kSizes)
      for (const auto& [kind, rounds] :
           {std::pair(CollectiveKind::all_reduce, 2.0), std::pair(CollectiveKind::all_gather, 1.0),
            std::pair(CollectiveKind::reduce_scatter, 1.0)}) {
        const double per_node = static_cast<double>(g.per_node);
        double expected, bound;
        if (g.nodes == 1) {
          // n-1 steps a round, each passing on 1/n of the bytes.
          expected = 10e-6 + rounds * (n - 1) * (2e-6 + s / n / kNvlink);
          bound = rounds * (n - 1) / n * s / kNvlink;
        } else {
          // As many rings as GPUs on a node; of n-1 steps one a node goes by NIC.
          const double hops = std::min(static_cast<double>(g.nodes), n - 1);
          const double piece = s / n / per_node;
          const double path =
              rounds * (hops * (6e-6 + piece / kNic) + (n - 1 - hops) * (2e-6 + piece / kNvlink));
          bound = rounds * (n - 1) / n * s / per_node / kNic;
          expected = 10e-6 + std::max(path, bound + 6e-6);
        }
        CAPTURE(g.nodes, g.per_node, s, static_cast<int>(kind));
        const double seconds = alone(profile, g, kind, s, "ring");
        CHECK(seconds == about(expected));
        CHECK(seconds > bound);
      }
  }
}

TEST_CASE("trees: up and down the levels and the chains, each byte twice through an inner NIC") {
  for (const Group8 g : {Group8{2, 8}, {4, 8}, {16, 8}, {128, 8}, {1024, 1}, {64, 4}}) {
    const auto per_node = static_cast<double>(g.per_node);
    for (const double s : kSizes) {
      const double path = 2 * log2_up(g.nodes) * 9e-6 + 2 * (per_node - 1) * 3e-6;
      // Each GPU's NIC has two trees of half of 1/per_node of the bytes: an inner node in one
      // sends to its parent and two children, as a leaf in the other to its parent; of two nodes
      // each is root once.
      const double halves = g.nodes == 2 ? 2 : 4;
      const double nic = halves * s / (2 * per_node) / (0.8 * kNic);
      const double nvlink = 2 * (per_node - 1) / per_node * s / (0.5 * kNvlink);
      CAPTURE(g.nodes, g.per_node, s);
      CHECK(alone(machine_of(g.per_node), g, CollectiveKind::all_reduce, s, "tree") ==
            about(12e-6 + path + std::max(nic, nvlink)));
    }
  }
}

TEST_CASE("NVLS: bytes once into the switch and once out, and each GPU's part again") {
  for (const Group8 g : {Group8{1, 4}, {1, 8}, {2, 8}, {32, 8}, {128, 8}})
    for (const double s : kSizes) {
      const auto per_node = static_cast<double>(g.per_node);
      const double inside = s * (1 + 1 / per_node) / (0.9 * kNvlink);
      const double between =
          g.nodes == 1 ? 0 : (g.nodes == 2 ? 2 : 4) * s / (2 * per_node) / (0.75 * kNic);
      CAPTURE(g.nodes, g.per_node, s);
      CHECK(alone(machine_of(g.per_node), g, CollectiveKind::all_reduce, s, "nvls") ==
            about(20e-6 + 2 * 4e-6 + 2 * log2_up(g.nodes) * 15e-6 + std::max(inside, between)));
    }
}

TEST_CASE("broadcast, send and the ways of an all-to-all") {
  for (const Group8 g : {Group8{1, 8}, {2, 8}, {16, 8}, {128, 8}})
    for (const double s : kSizes) {
      const auto n = static_cast<double>(g.nodes * g.per_node),
                 nodes = static_cast<double>(g.nodes);
      const ClusterProfile profile = machine_of(g.per_node);
      CAPTURE(g.nodes, s);
      CHECK(alone(profile, g, CollectiveKind::broadcast, s) ==
            about(10e-6 + (n - nodes) * 2e-6 + (nodes - 1) * 6e-6 +
                  s / (g.nodes == 1 ? kNvlink : kNic)));
      CHECK(alone(profile, g, CollectiveKind::send, s) ==
            about(30e-6 + (g.nodes == 1 ? 1e-6 + s / (0.8 * kNvlink) : 5e-6 + s / (0.9 * kNic))));
      const double inside = 7 * s / n, outside = s - 8 * s / n;
      const double direct = g.nodes == 1
                                ? 1e-6 + 6 * 0.5e-6 + inside / (0.8 * kNvlink)
                                : 5e-6 + 6 * 0.5e-6 + (n - 9) * 2e-6 +
                                      std::max(inside / (0.8 * kNvlink), outside / (0.9 * kNic));
      CHECK(alone(profile, g, CollectiveKind::all_to_all_v, s) == about(30e-6 + direct));
      if (g.nodes == 1) continue;
      // Seven eighths of what leaves the node first go to the GPU of the receiver's rail.
      const double relayed = inside + outside * 7 / 8;
      const double latency = 1e-6 + 5e-6 + 6 * 0.5e-6 + (nodes - 2) * 2e-6;
      CHECK(alone(profile, g, CollectiveKind::all_to_all_v, s, "pxn") ==
            about(30e-6 + latency + std::max(relayed / (0.8 * kNvlink), outside / (0.9 * kNic))));
      CHECK(alone(profile, g, CollectiveKind::all_to_all_v, s, "hierarchical") ==
            about(30e-6 + latency + relayed / (0.8 * kNvlink) + outside / (0.9 * kNic)));
    }
}

TEST_CASE("in a mesh of NVLinks a few GPUs have only the links between them") {
  const auto parse = [](const char* more) {
    return parse_cluster_profile(fmt::format(R"({{"base": "toy-8gpu", "nvlink": {{"mesh": {{"links":
          {{"value": 6, "source": "s"}}, "among_2": {{"value": {}, "source": "s"}}}}}}}})",
                                             more),
                                 std::string(TEST_CLUSTERS) + "/mesh.json");
  };
  const ClusterProfile p = parse("1");
  // 10 GB/s of 6 links; 1 us a step: 2 GPUs have a sixth, 4 all of it.
  CHECK(alone(p, {1, 2}, CollectiveKind::all_reduce, 60e6) == about(2e-6 + 60e6 / (10e9 / 6)));
  CHECK(alone(p, {1, 4}, CollectiveKind::all_reduce, 60e6) == about(6e-6 + 1.5 * 60e6 / 10e9));
  CHECK_THROWS_WITH(parse("7"), Catch::Contains("nvlink.mesh.among_2: 7 of 6 links cannot be"));
}

TEST_CASE("the fastest protocol that is allowed is taken") {
  ClusterProfile profile = machine_of(8);
  profile.nccl_section->ring[static_cast<size_t>(Protocol::ll)] = steps(5e-6, 1e-6, 3e-6, 0.2, 0.2);
  const Machine machine(profile, 8);
  const auto take = [&](double bytes, const std::map<std::string, std::string>& nccl) {
    CollectiveShape shape;
    shape.kind = CollectiveKind::all_reduce;
    shape.group.n1 = 8;
    const NodesOfGroup on(shape.group, machine);
    shape.on = &on;
    shape.bytes = bytes;
    Plan plan;
    make_plan(shape, machine, nccl_choice("auto", nccl), plan);
    return std::string(algorithm_name(plan.algorithm)) + " " + protocol_name(plan.protocol);
  };
  // LL saves 19 us and loses 4 * 14 s / (8 kNvlink): they cross at 0.54 MB; NVLS is at 28 us and
  // s 1.125 / (0.9 kNvlink).
  CHECK(take(1e3, {}) == "ring ll");
  CHECK(take(1e6, {{"NCCL_NVLS_ENABLE", "0"}}) == "ring simple");
  CHECK(take(1e6, {}) == "nvls simple");
  CHECK(take(1e3, {{"NCCL_PROTO", "Simple"}}) == "nvls simple");
  CHECK(take(1e3, {{"NCCL_PROTO", "^LL"}, {"NCCL_ALGO", "Ring"}}) == "ring simple");
  CHECK(take(1e9, {{"NCCL_PROTO", "LL"}, {"NCCL_ALGO", "Ring,Tree"}}) == "ring ll");
  CHECK(take(1e3, {{"NCCL_ALGO", "Tree"}}) == "tree simple");
  CHECK(take(1e3, {{"NCCL_ALGO", "CollnetDirect"}}) == "ring ll");
}

TEST_CASE("laws on a thousand machines", "[C26][C27]") {
  std::mt19937_64 random(7);
  const auto between = [&](double low, double high) {
    return low * std::pow(high / low, std::uniform_real_distribution<double>(0, 1)(random));
  };
  const auto one_of = [&](std::initializer_list<int64_t> list) {
    return list.begin()[std::uniform_int_distribution<size_t>(0, list.size() - 1)(random)];
  };
  constexpr CollectiveKind kKinds[] = {
      CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
      CollectiveKind::broadcast,  CollectiveKind::send,       CollectiveKind::all_to_all_v};
  for (int i = 0; i < 1000; ++i) {
    const Group8 g{one_of({1, 2, 4, 8}), one_of({1, 2, 4, 8})};
    if (g.nodes * g.per_node == 1) continue;
    ClusterProfile p = machine_of(g.per_node);
    p.nvlink.bandwidth = BytesPerSecond(between(100e9, 900e9));
    p.nic.bandwidth = BytesPerSecond(between(1e9, 50e9));
    p.nics_per_node = std::min(g.per_node, one_of({1, 2, 4, 8}));
    p.fabric.oversubscription = between(1, 8);
    for (ByProtocol NcclProfile::*list :
         {&NcclProfile::ring, &NcclProfile::tree, &NcclProfile::pairs, &NcclProfile::nvls})
      for (auto& f : (*p.nccl_section).*list)
        if (list != &NcclProfile::nvls || f)
          f = steps(between(1e-6, 1e-4), between(1e-7, 1e-6), between(1e-6, 5e-5), between(0.5, 1),
                    between(0.05, 1));
    const double bytes = between(1e3, 1e10);
    for (const CollectiveKind kind : kKinds) {
      CAPTURE(i, static_cast<int>(kind), g.nodes, g.per_node, bytes);
      const double seconds = alone(p, g, kind, bytes);
      ClusterProfile faster = p;
      faster.nvlink.bandwidth = BytesPerSecond(2 * p.nvlink.bandwidth.value);
      faster.nic.bandwidth = BytesPerSecond(2 * p.nic.bandwidth.value);
      faster.gpu.memory_bandwidth = BytesPerSecond(2 * p.gpu.memory_bandwidth.value);
      const double fast = alone(faster, g, kind, bytes), half = alone(p, g, kind, bytes / 2);
      CHECK(fast < seconds);
      CHECK(fast > seconds / 2);
      CHECK(half == Approx(fast).epsilon(1e-9));
      const double more = alone(p, {2 * g.nodes, g.per_node}, kind, bytes);
      // From one node to two another algorithm may come in; links inside are the faster ones.
      if (kind != CollectiveKind::send && g.nodes > 1) CHECK(more >= seconds * (1 - 1e-9));
      // Nothing beats bytes over the links' rate. All GPUs of a node leave it together.
      const auto n = static_cast<double>(g.nodes * g.per_node);
      const double ways = kind == CollectiveKind::all_reduce ? 1 : (n - 1) / n;
      if (kind != CollectiveKind::send && kind != CollectiveKind::broadcast)
        CHECK(seconds > ways * bytes /
                            std::max(p.nvlink.bandwidth.value,
                                     p.nic.bandwidth.value * static_cast<double>(g.per_node)));
    }
    // The same rows, more and more of them to one receiver.
    const auto n = static_cast<size_t>(g.nodes * g.per_node);
    double last = 0;
    for (const double hot : {0.0, 0.3, 0.9}) {
      std::vector<double> pairs(n * n, (1 - hot) * bytes / static_cast<double>(n));
      for (size_t from = 0; from < n; ++from) pairs[from * n] += hot * bytes;
      const double seconds = alone(p, g, CollectiveKind::all_to_all_v, bytes, "auto", pairs);
      CHECK(seconds >= last * (1 - 1e-9));
      last = seconds;
    }
  }
}

TEST_CASE("a deduplicating exchange sends a row once to each node and once to each GPU") {
  // 4 nodes of 8, rows of 8 experts spread evenly: to a quarter of the experts go
  // 1 - (3/4)^8 rows of 8/4, to each GPU 1 - (31/32)^8 of 8/32.
  const ClusterProfile profile = machine_of(8);
  const double bytes = 1 << 30, k = 8;
  const double node = (1 - std::pow(0.75, k)) / (k / 4);
  const double gpu = (1 - std::pow(31.0 / 32, k)) / (k / 32);
  const Group8 g{4, 8};
  // By NIC to three nodes; by NVLink to the 7 others here, and on from each relay to 7 of 8.
  const double nic = bytes * 3 / 4 * node / (kNic * kPairs.nic_share);
  const double nvlink = bytes / 32 * gpu * (7 + 3 * 7) / (kNvlink * kPairs.nvlink_share);
  const double deduplicated =
      alone(profile, g, CollectiveKind::all_to_all_v, bytes, "deduplicated", {}, {8});
  CHECK(deduplicated == Approx(std::max(nic, nvlink)).epsilon(0.01));
  // With one expert a token nothing is the same.
  CHECK(alone(profile, g, CollectiveKind::all_to_all_v, bytes, "deduplicated", {}, {1}) ==
        Approx(bytes * 3 / 4 / (kNic * kPairs.nic_share)).epsilon(0.01));
  // Inside a node only copies for one GPU are.
  const double inside = (1 - std::pow(7.0 / 8, k)) / (k / 8);
  CHECK(alone(profile, {1, 8}, CollectiveKind::all_to_all_v, bytes, "deduplicated", {}, {8}) ==
        Approx(bytes * 7 / 8 * inside / (kNvlink * kPairs.nvlink_share)).epsilon(0.01));
  // Rows that are no tokens' copies are all sent.
  CHECK(alone(profile, g, CollectiveKind::all_to_all_v, bytes, "deduplicated", {}, {8}, false) ==
        alone(profile, g, CollectiveKind::all_to_all_v, bytes, "auto"));
}

TEST_CASE("kernels of a deduplicating exchange have figures of their own") {
  ClusterProfile profile = machine_of(8);
  ProtocolFigures own = kPairs;
  own.nvlink_share = kPairs.nvlink_share / 2;
  profile.nccl_section->deduplicated[static_cast<size_t>(Protocol::simple)] = own;
  const double bytes = 1 << 30, k = 8;
  const double inside = (1 - std::pow(7.0 / 8, k)) / (k / 8);
  CHECK(alone(profile, {1, 8}, CollectiveKind::all_to_all_v, bytes, "deduplicated", {}, {8}) ==
        Approx(2 * bytes * 7 / 8 * inside / (kNvlink * kPairs.nvlink_share)).epsilon(0.01));
  // All other rows go as before.
  CHECK(alone(profile, {1, 8}, CollectiveKind::all_to_all_v, bytes, "auto") ==
        alone(machine_of(8), {1, 8}, CollectiveKind::all_to_all_v, bytes, "auto"));
  // What is passed to nodes, the own one included, where that takes longest: to each of two go
  // 1 - (1/2)^8 tokens of 8/2 rows. In one node nothing is.
  const double inside_only =
      alone(profile, {1, 8}, CollectiveKind::all_to_all_v, bytes, "deduplicated", {}, {8});
  profile.nccl_section->relay = BytesPerSecond(1e9);
  const double passed = 2 * (1 - std::pow(0.5, k)) / k;
  CHECK(alone(profile, {2, 8}, CollectiveKind::all_to_all_v, bytes, "deduplicated", {}, {8}) ==
        Approx(bytes * passed / 1e9).epsilon(0.01));
  CHECK(alone(profile, {1, 8}, CollectiveKind::all_to_all_v, bytes, "deduplicated", {}, {8}) ==
        inside_only);
}

TEST_CASE("tokens reach the places of their experts, within kept groups") {
  // 4 copies, 8 experts in 4 groups of 2, 2 groups kept: of 6 pairs of groups each place of one
  // group is in 3; its half, one expert, is then missed by 4 choices of 4 with chance (3/4)^4.
  const TokenCopies limited{4, 4, 2};
  CHECK(limited.reach(0.25) == Approx(0.5 * (1 - std::pow(0.5, 4))));
  CHECK(limited.reach(0.125) == Approx(0.5 * (1 - std::pow(0.75, 4))));
  // Two groups: both are kept in 1 of 6 pairs, one in 4 of 6, none in 1.
  CHECK(limited.reach(0.5) == Approx(1.0 / 6 + 4.0 / 6 * (1 - std::pow(0.5, 4))));
  CHECK(limited.reach(1) == Approx(1));
  // Without a limit.
  CHECK(TokenCopies{4, 4, 4}.reach(0.25) == Approx(1 - std::pow(0.75, 4)));
  CHECK(TokenCopies{4}.reach(0.5) == Approx(1 - std::pow(0.5, 4)));
}
