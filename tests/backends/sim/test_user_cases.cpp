// What users met with other simulators (user_pain.md, C29 and C30), on the modelled machine.
#include <catch2/catch.hpp>
#include <map>

#include "backends/sim/cluster/faults.h"
#include "tests/backends/sim/sim_case.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

Approx about(double value) { return Approx(value).epsilon(1e-6).margin(3e-9); }

/// One GPU and one NIC a node.
Case nodes(int64_t world, const char* fidelity) {
  Case c;
  c.scenario = toy_scenario(world);
  c.scenario.training_config.numerics = "none";
  c.scenario.cluster.fidelity = fidelity;
  c.profile = ideal();
  c.profile.gpus_per_node = c.profile.nics_per_node = 1;
  return c;
}

Tensor shape_only(int64_t bytes) {
  Tensor t;
  t.shape = {bytes / 4};
  return t;
}

}  // namespace

TEST_CASE("100 messages of 64 MiB over 10 Gb/s take what the line takes", "[P197]") {
  for (const char* fidelity : {"fluid", "flow"}) {
    Case c = nodes(2, fidelity);
    c.profile.nic.bandwidth = BytesPerSecond(10e9 / 8);
    const auto ends = c.numbers([](Backend& d) {
      const Stream s = d.stream("comm");
      const auto world = d.communicator(all_ranks(d), "world");
      for (int i = 0; i < 100; ++i)
        if (d.properties().rank == 0)
          world->send(shape_only(64 << 20), 1, s, "t");
        else
          world->recv(shape_only(64 << 20), 0, s, "t");
      d.synchronize(s);
      return d.now();
    });
    CHECK(ends[0] == about(100.0 * 64 * 1024 * 1024 * 8 / 10e9));  // 5.37 s
  }
}

TEST_CASE("a node that was down works at its old speed afterwards", "[P200]") {
  // Steps of 0.1 s of compute and 1 GB over 10 GB/s. Step 5 (from 0.8 s on) meets a GPU and a NIC
  // that are out for 1.5 s.
  const auto steps = [](const std::vector<Fault>& faults) {
    Case c = nodes(2, "fluid");
    c.profile.nic.bandwidth = BytesPerSecond(10e9);
    c.profile.faults = faults;
    std::vector<double> seconds;
    for (int last = 1; last <= 10; ++last)
      seconds.push_back(c.numbers([last](Backend& d) {
        const Stream s = d.stream("compute");
        const auto world = d.communicator(all_ranks(d), "world");
        const Tensor none;
        for (int step = 0; step < last; ++step) {
          d.launch(spin(none, 0.1), s);
          if (d.properties().rank == 0)
            world->send(shape_only(1'000'000'000), 1, s, "t");
          else
            world->recv(shape_only(1'000'000'000), 0, s, "t");
        }
        d.synchronize(s);
        return d.now();
      })[0]);
    for (size_t i = seconds.size() - 1; i > 0; --i) seconds[i] -= seconds[i - 1];
    return seconds;
  };
  const auto whole = steps({});
  const auto restarted = steps({{Fault::What::nic, 1, 0, 0.95, 2.45}});
  for (size_t i = 0; i < whole.size(); ++i) {
    CHECK(whole[i] == about(0.2));
    CHECK(restarted[i] == about(i == 4 ? 0.2 + 1.5 : 0.2));
  }
}

TEST_CASE("each collective is of its own group", "[P210][P194]") {
  // TP 2 (neighbours), EP 4 (every second rank), DP 2 (halves of 16 ranks).
  Case c = nodes(16, "fluid");
  const auto own = c.numbers([](Backend& d) {
    const int64_t rank = d.properties().rank;
    const Stream s = d.stream("comm");
    const auto group = [&](int64_t base, int64_t n, int64_t stride, const char* name) {
      Group g;
      g.base = base;
      g.n1 = n;
      g.stride1 = stride;
      return d.communicator(g, name);
    };
    const auto tp = group(rank / 2 * 2, 2, 1, "tp");
    const auto ep = group(rank / 8 * 8 + rank % 2, 4, 2, "ep");
    const auto dp = group(rank % 8, 2, 8, "dp");
    tp->all_reduce(shape_only(4000), shape_only(4000), ReduceOp::sum, s, "tp");
    const auto rows = std::make_shared<const std::vector<int64_t>>(4, 1);
    const auto begin =
        std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{0, 1, 2, 3});
    Tensor tokens;
    tokens.shape = {4, 1000};
    ep->all_to_all_v(tokens, tokens, rows, begin, rows, begin, s, "ep");
    dp->all_gather(shape_only(4000), shape_only(8000), s, "dp");
    d.synchronize(s);
    std::map<std::string, int64_t> bytes;
    for (const Traffic& t : d.take_profile(false).traffic) bytes[t.group] += t.bytes;
    const bool own = bytes.size() == 3 && bytes["tp"] == 4000 &&  // 2 * (2 - 1) / 2 of 4000
                     bytes["ep"] == 3 * 4000 &&  // a row of 4000 to each of the other three
                     bytes["dp"] == 4000;        // its own part to the other
    return own ? 1.0 : 0.0;
  });
  for (const double rank : own) CHECK(rank == 1);
}
