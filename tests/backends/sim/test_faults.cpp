// Slow and lost links and GPUs, at given times, in both networks.
#include <catch2/catch.hpp>

#include "backends/sim/cluster/faults.h"
#include "core/base/error.h"
#include "tests/backends/sim/sim_case.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {

Approx about(double value) { return Approx(value).epsilon(1e-6).margin(3e-9); }

/// Rank 0 sends 1 GB to rank 1 over a NIC of 1 GB/s: 1 s without faults.
double send_end(const std::vector<Fault>& faults, const char* fidelity) {
  Case c;
  c.scenario = toy_scenario(2);
  c.scenario.training_config.numerics = "none";
  c.scenario.cluster.fidelity = fidelity;
  c.profile = ideal();
  c.profile.gpus_per_node = c.profile.nics_per_node = 1;
  c.profile.faults = faults;
  return c.numbers([](Backend& d) {
    const Stream s = d.stream("comm");
    const auto all = d.communicator(all_ranks(d), "world");
    Tensor t;
    t.shape = {250'000'000};
    if (all->rank() == 0)
      all->send(t, 1, s, "t");
    else
      all->recv(t, 0, s, "t");
    d.synchronize(s);
    return d.now();
  })[1];
}

Fault nic(int64_t rank, double left, double from, double to) {
  return {Fault::What::nic, rank, left, from, to};
}
constexpr double kForever = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("a slow link carries what it can while it is slow, a lost one nothing") {
  for (const char* fidelity : {"fluid", "flow"}) {
    CHECK(send_end({}, fidelity) == about(1));
    CHECK(send_end({nic(1, 0.5, 0, kForever)}, fidelity) == about(2));
    // 0.3 GB, then 0.2 s at a quarter, then the other 0.65 GB.
    CHECK(send_end({nic(0, 0.25, 0.3, 0.5)}, fidelity) == about(0.5 + 0.65));
    CHECK(send_end({nic(0, 0, 0.3, 0.5)}, fidelity) == about(1.2));
    // In fluid the ports at both ends go on for themselves.
    CHECK(send_end({nic(0, 0, 0.3, 0.5), nic(1, 0, 0.4, 0.7)}, fidelity) ==
          about(fidelity == std::string("flow") ? 1.4 : 1.3));
    CHECK(send_end({nic(0, 0.1, 2, 3)}, fidelity) == about(1));
    // Of both ends the slower one counts; two faults of one NIC multiply.
    CHECK(send_end({nic(0, 0.5, 0, kForever), nic(1, 0.8, 0, kForever)}, fidelity) == about(2));
    CHECK(send_end({nic(0, 0.5, 0, kForever), nic(0, 0.5, 0, kForever)}, fidelity) == about(4));
  }
}

TEST_CASE("a GPU's work takes longer while it is slow") {
  Case c;
  c.profile = ideal();
  c.scenario = toy_scenario(2);
  c.profile.faults = {{Fault::What::gpu, 1, 0.5, 0.25, 0.6}};
  const auto ends = c.numbers([](Backend& d) {
    const Stream s = d.stream("compute");
    Allocator memory(d, false);
    const Tensor y = memory.allocate({4}, DType::f32, MemoryClass::workspace, "y");
    for (int i = 0; i < 5; ++i) d.launch(spin(y, 0.1), s);
    d.synchronize(s);
    return d.now();
  });
  CHECK(ends[0] == about(0.5));
  // They begin at 0, 0.1, 0.2, 0.3 (0.2 s, slow), 0.5 (0.2 s, slow).
  CHECK(ends[1] == about(0.7));
}

TEST_CASE("shares of overlapping faults") {
  const auto changes = rate_changes({nic(0, 0.5, 1, 3), nic(0, 0.25, 2, kForever)});
  REQUIRE(changes.size() == 3);
  CHECK(changes[0].time == 1);
  CHECK(changes[0].share == 0.5);
  CHECK(changes[1].share == 0.125);
  CHECK(changes[2].time == 3);
  CHECK(changes[2].share == 0.25);
  CHECK(fault_text(nic(3, 0.25, 1, 2)) == "nic of rank 3 at 0.25 from 1 s to 2 s");
}

TEST_CASE("faults that cannot be are named") {
  const auto parse = [](const std::string& faults) {
    return parse_cluster_profile(R"({"faults": )" + faults + "}", "f.json");
  };
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "faults: must be a list"},
      {R"([{"what": "disk"}])", "faults[0]: \"what\" must be \"gpu\", \"nvlink\" or \"nic\""},
      {R"([{"what": "nic", "rank": -1}])", "faults[0]: \"rank\" must be a whole number, 0 or more"},
      {R"([{"what": "nic", "rank": 1, "left": 2}])", "\"left\" must be a share of the rate"},
      {R"([{"what": "nic", "rank": 1, "left": 0}])", "give \"to_seconds\""},
      {R"([{"what": "gpu", "rank": 1, "left": 0, "to_seconds": 1}])", "never ends"},
      {R"([{"what": "gpu", "rank": 1, "left": 0.5, "from_seconds": 2, "to_seconds": 1}])",
       "must be after"},
      {R"([{"what": "gpu", "rank": 1, "left": 0.5, "until": 2}])", "a key that is not known"}};
  for (const auto& [faults, message] : cases) CHECK_THROWS_WITH(parse(faults), Contains(message));
}
