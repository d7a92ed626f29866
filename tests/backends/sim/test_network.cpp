// The two networks against closed forms and against each other.
#include <catch2/catch.hpp>
#include <numeric>

#include "core/base/error.h"
#include "tests/backends/sim/sim_case.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {

Approx exactly(double value) { return Approx(value).margin(3e-9).epsilon(1e-9); }
Approx within(double part, double value) { return Approx(value).epsilon(part); }

Case phantom(int64_t world, ClusterProfile profile, const char* fidelity = "fluid",
             const char* algorithm = "auto") {
  Case c;
  c.scenario = toy_scenario(world);
  c.scenario.training_config.numerics = "none";
  c.scenario.cluster.fidelity = fidelity;
  c.scenario.cluster.collective_algorithm = algorithm;
  c.profile = std::move(profile);
  return c;
}

Tensor shape_only(int64_t bytes) {
  Tensor t;
  t.shape = {bytes / 4};
  return t;
}

using Start = std::function<void(Communicator&, Stream)>;
/// When rank 0 has done one collective of everybody.
double once(const Case& c, const Start& start) {
  return c.numbers([&](Backend& d) {
    const Stream s = d.stream("comm");
    const auto world = d.communicator(all_ranks(d), "world");
    start(*world, s);
    d.synchronize(s);
    return d.now();
  })[0];
}

Start all_reduce(int64_t bytes) {
  return [=](Communicator& c, Stream s) {
    c.all_reduce(shape_only(bytes), shape_only(bytes), ReduceOp::sum, s, "t");
  };
}

/// Rows of 4,000 bytes from member i to member j.
Start all_to_all(std::function<int64_t(int64_t, int64_t)> rows) {
  return [rows](Communicator& c, Stream s) {
    std::vector<int64_t> to, from, begin(static_cast<size_t>(c.size()));
    for (int64_t j = 0; j < c.size(); ++j) {
      to.push_back(rows(c.rank(), j));
      from.push_back(rows(j, c.rank()));
    }
    Tensor t;
    t.shape = {1, 1000};
    const auto sizes = [](const std::vector<int64_t>& v) {
      return std::make_shared<const std::vector<int64_t>>(v);
    };
    c.all_to_all_v(t, t, sizes(to), sizes(begin), sizes(from), sizes(begin), s, "t");
  };
}

}  // namespace

TEST_CASE("a transfer takes exactly latency + bytes / bandwidth: nothing of TCP is left",
          "[P196]") {
  // 1 GiB at 1 GB/s is 1.0737 s. TCP's window would cap 1e9 B/s at gamma / (2 * latency), 4 MB/s
  // with a second of latency.
  for (const double latency : {0.0, 10e-6, 1.0})
    for (const char* fidelity : {"fluid", "flow"}) {
      ClusterProfile profile = ideal();
      profile.nic.latency = Seconds(latency);
      profile.gpus_per_node = profile.nics_per_node = 1;
      const double end = once(phantom(2, profile, fidelity), [](Communicator& c, Stream s) {
        if (c.rank() == 0)
          c.send(shape_only(1 << 30), 1, s, "t");
        else
          c.recv(shape_only(1 << 30), 0, s, "t");
      });
      CHECK(end == exactly(latency + 1.073741824));
    }
}

TEST_CASE("1 MB at 5 Mb/s takes 1.6 s among any number of hosts", "[P199]") {
  ClusterProfile profile = ideal();
  profile.gpus_per_node = profile.nics_per_node = 1;
  profile.nic.bandwidth = BytesPerSecond(5e6 / 8);
  for (const int64_t hosts : {8, 10, 11, 16, 64})
    for (const char* fidelity : {"fluid", "flow"})
      CHECK(once(phantom(hosts, profile, fidelity), [](Communicator& c, Stream s) {
              if (c.rank() == 0) c.send(shape_only(1'000'000), c.size() - 1, s, "t");
              if (c.rank() == c.size() - 1) c.recv(shape_only(1'000'000), 0, s, "t");
            }) == exactly(1.6));
}

TEST_CASE("all-to-all over nodes is bound by the NICs", "[P182]") {
  // 1 GiB per GPU, 8 GPUs a node, 25 GB/s a NIC: (n - 8) / n of it leaves the node.
  ClusterProfile profile = ideal();
  profile.nic.bandwidth = BytesPerSecond(25e9);
  profile.nvlink.bandwidth = BytesPerSecond(300e9);
  profile.gpu.memory_bandwidth = BytesPerSecond(1e18);  // rows to oneself take no time
  const double milliseconds[] = {21.47, 32.21, 37.58};
  for (int i = 0; i < 3; ++i) {
    const int64_t world = 16 << i;
    const int64_t rows = (1 << 30) / 4000 / world;
    const double end =
        once(phantom(world, profile), all_to_all([=](int64_t, int64_t) { return rows; }));
    CHECK(1e3 * end == within(1e-3, milliseconds[i]));
  }
}

TEST_CASE("fluid and flow agree on every collective when alone") {
  struct Shape {
    int64_t world;
    const char* algorithm;
  };
  ClusterProfile profile = toy();
  profile.gpu.launch_overhead_seconds = Seconds(0);
  // Two protocols: what a share leaves of the links takes them up as long in both networks.
  NcclProfile& nccl =
      profile.nccl_section.emplace(one_protocol(Seconds(2e-6), Seconds(1e-6), Seconds(1e-5)));
  nccl.nvls = nccl.tree;
  nccl.ring[0] = nccl.tree[0] = nccl.pairs[0] = ProtocolFigures{
      Seconds(1e-6), Seconds(3e-7), Seconds(4e-6), 0.3, 0.25, Seconds(1e-7), Seconds(2e-7)};
  for (const Shape shape : {Shape{2, "ring"},
                            {5, "ring"},
                            {8, "ring"},
                            {16, "ring"},
                            {16, "tree"},
                            {8, "tree"},
                            {32, "tree"},
                            {64, "tree"},
                            {8, "nvls"},
                            {32, "nvls"}}) {
    const auto both = [&](const Start& start) {
      return std::pair(once(phantom(shape.world, profile, "fluid", shape.algorithm), start),
                       once(phantom(shape.world, profile, "flow", shape.algorithm), start));
    };
    CAPTURE(shape.world, shape.algorithm);
    for (const int64_t bytes : {1 << 12, 1 << 16, 1 << 20, 64 << 20}) {
      CAPTURE(bytes);
      const auto [fluid, flow] = both(all_reduce(bytes));
      CHECK(fluid == within(shape.algorithm[0] == 'r' ? 0.03 : 0.01, flow));
    }
  }
  for (const Shape shape : {Shape{8, "auto"}, {16, "auto"}, {16, "pxn"}, {24, "hierarchical"}}) {
    const auto both = [&](const Start& start) {
      return std::pair(once(phantom(shape.world, profile, "fluid", shape.algorithm), start),
                       once(phantom(shape.world, profile, "flow", shape.algorithm), start));
    };
    CAPTURE(shape.world, shape.algorithm);
    for (const Start& start :
         {Start([](Communicator&c, Stream s) {
            c.all_gather(shape_only(8 << 20), shape_only((8 << 20) * c.size()), s, "t");
          }),
          Start([](Communicator&c, Stream s) {
            c.reduce_scatter(shape_only((8 << 20) * c.size()), shape_only(8 << 20), ReduceOp::sum,
                             s, "t");
          }),
          Start([](Communicator&c, Stream s) { c.broadcast(shape_only(64 << 20), 3, s, "t"); }),
          Start([](Communicator&c, Stream s) { c.barrier(s); }),
          all_to_all([](int64_t i, int64_t j) { return 1000 + 7 * i + 131 * j; }),
          all_to_all([](int64_t i, int64_t j) { return j == 2 ? 5000 + i : 0; })}) {
      const auto [fluid, flow] = both(start);
      CHECK(fluid == within(0.03, flow));
    }
  }
}

TEST_CASE("flow at its largest groups is the closed form too") {
  ClusterProfile profile = toy();  // NVLink 10 GB/s and 1 us a step, NIC 1 GB/s and 10 us
  profile.gpu.launch_overhead_seconds = Seconds(0);
  constexpr double s = 64 << 20;
  // Up and down 5 levels of nodes and 7 GPUs; an inner node's NIC carries an eighth four times
  // half.
  CHECK(once(phantom(256, profile, "flow", "tree"), all_reduce(64 << 20)) ==
        within(0.01, 2 * 5 * 10e-6 + 2 * 7 * 1e-6 + 2 * s / 8 / 1e9));
  // 56 of 64 ranks are on other nodes.
  CHECK(once(phantom(64, profile, "flow"), all_to_all([](int64_t, int64_t) { return 25; })) ==
        within(0.01, 10e-6 + 56 * 25 * 4000 / 1e9));
  profile.gpus_per_node = profile.nics_per_node = 1;
  CHECK(once(phantom(256, profile, "flow"), [](Communicator& c, Stream stream) {
          c.all_gather(shape_only((64 << 20) / 256), shape_only(64 << 20), stream, "t");
        }) == within(0.01, 255 * (10e-6 + s / 256 / 1e9)));
}

TEST_CASE("a skewed exchange is slower than an even one of as many bytes", "[P206]") {
  double last = 0;
  // Rank 0 gets 1, 2 and 4 times the mean of the others' rows: 8 * 7 * 100 rows in all.
  for (const int64_t hot : {100, 200, 400}) {
    const int64_t cold = (700 - hot) / 6;
    const double end = once(phantom(8, ideal()), all_to_all([=](int64_t i, int64_t j) {
                              return i == j ? 0 : j == 0 ? hot : i == 0 ? 100 : cold;
                            }));
    CHECK(end == exactly(7 * static_cast<double>(hot) * 4000 / 10e9));
    CHECK(end > last);
    last = end;
  }
}

TEST_CASE("two collectives on one port share it") {
  // Ranks 0 -> 1 and 0 -> 2 send 1 GB each from the same 10 GB/s port: 0.2 s; alone 0.1 s.
  for (const char* fidelity : {"fluid", "flow"}) {
    const auto ends = phantom(3, ideal(), fidelity).numbers([](Backend& d) {
      const Stream a = d.stream("a"), b = d.stream("b");
      Group left, right;
      left.n1 = 2;
      right.n1 = 2;
      right.stride1 = 2;
      const int64_t rank = d.properties().rank;
      if (rank != 2) {
        const auto c = d.communicator(left, "left");
        if (rank == 0)
          c->send(shape_only(1'000'000'000), 1, a, "t");
        else
          c->recv(shape_only(1'000'000'000), 0, a, "t");
      }
      if (rank != 1) {
        const auto c = d.communicator(right, "right");
        if (rank == 0)
          c->send(shape_only(500'000'000), 1, b, "t");
        else
          c->recv(shape_only(500'000'000), 0, b, "t");
      }
      d.synchronize(a);
      const double first = d.now();
      d.synchronize(b);
      return rank == 0 ? first : d.now();
    });
    CHECK(ends[2] == exactly(0.1));   // 0.5 GB at half the port
    CHECK(ends[0] == exactly(0.15));  // then 0.5 GB more at the whole port
    CHECK(ends[1] == exactly(0.15));
  }
}

TEST_CASE("an oversubscribed fabric binds all NICs of a node together") {
  ClusterProfile profile = ideal();
  profile.fabric.oversubscription = 4;
  for (const char* fidelity : {"fluid", "flow"}) {
    // 8 GPUs send 8 * 100 * 4,000 bytes each to the other node; uplink 8 * 1e9 / 4.
    CHECK(once(phantom(16, profile, fidelity), all_to_all([](int64_t i, int64_t j) {
                 return i / 8 != j / 8 ? 100 : 0;
               })) == exactly(8 * 8 * 100 * 4000.0 / 2e9));
  }
}

TEST_CASE("bytes beyond 2^31 and none at all", "[P214][P211][P218]") {
  const auto take = [](int64_t bytes) { return once(phantom(4, ideal()), all_reduce(bytes)); };
  CHECK(take(int64_t{3} << 30) == exactly(1.5 * take(int64_t{2} << 30)));
  CHECK(take(int64_t{3} << 30) > take(int64_t{2} << 30));
  ClusterProfile slow = toy();
  slow.gpu.launch_overhead_seconds = Seconds(0);
  for (const char* fidelity : {"fluid", "flow"})
    for (const Start& start :
         {all_reduce(0), all_to_all([](int64_t, int64_t) { return 0; }),
          Start(
              [](Communicator&c, Stream s) { c.all_gather(shape_only(0), shape_only(0), s, "t"); }),
          Start([](Communicator&c, Stream s) {
            c.reduce_scatter(shape_only(0), shape_only(0), ReduceOp::max, s, "t");
          }),
          Start([](Communicator&c, Stream s) { c.broadcast(shape_only(0), 0, s, "t"); })})
      CHECK(once(phantom(4, slow, fidelity), start) == 0);
}

TEST_CASE("flow refuses groups that would take too long, fluid takes them") {
  const auto start = all_to_all([](int64_t, int64_t) { return 1; });
  CHECK_THROWS_WITH(once(phantom(72, ideal(), "flow"), start),
                    Contains("at most 64 members") && Contains("has 72") && Contains("fluid"));
  CHECK(once(phantom(72, ideal()), start) > 0);
}
