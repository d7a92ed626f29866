// Slow and lost links and GPUs, at given times, in both networks.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

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
      {R"([{"what": "nvlink", "rank": 1, "left": 0}])", "give \"to_seconds\""},
      {R"([{"what": "nic", "left": 0.5}])", "\"rank\" must be a whole number, 0 or more"},
      {R"([{"what": "nic", "left": 0.5, "mean_seconds_between": 5}])", "go together"},
      {R"([{"what": "nic", "left": 0.5, "mean_seconds_between": 0, "for_seconds": 1}])",
       "must be numbers greater than 0"},
      {R"([{"what": "nic", "rank": 1, "left": 0.5, "seed": 1}])",
       "beside \"mean_seconds_between\""},
      {R"([{"what": "gpu", "rank": 1, "left": 0, "to_seconds": 1}])", "never ends"},
      {R"([{"what": "gpu", "rank": 1, "left": 0.5, "from_seconds": 2, "to_seconds": 1}])",
       "must be after"},
      {R"([{"what": "gpu", "rank": 1, "left": 0.5, "until": 2}])", "a key that is not known"}};
  for (const auto& [faults, message] : cases) CHECK_THROWS_WITH(parse(faults), Contains(message));
}

namespace {

/// Nodes of `nics` GPUs with as many NICs of 1 GB/s; each (from, to, GB) is sent, and its end
/// given.
struct Sent {
  int64_t from, to;
  double gigabytes;
};
std::vector<double> ends(int64_t nics, int64_t world, const std::vector<Fault>& faults,
                         const std::vector<Sent>& sends, const char* fidelity = "fluid") {
  Case c;
  c.scenario = toy_scenario(world);
  c.scenario.training_config.numerics = "none";
  c.scenario.cluster.fidelity = fidelity;
  c.profile = ideal();
  c.profile.gpus_per_node = c.profile.nics_per_node = nics;
  c.profile.faults = faults;
  const auto of_rank = c.numbers([&](Backend& d) {
    const Stream s = d.stream("comm");
    const auto all = d.communicator(all_ranks(d), "world");
    for (const Sent& sent : sends) {
      Tensor t;
      t.shape = {static_cast<int64_t>(sent.gigabytes * 250e6)};
      if (all->rank() == sent.from) all->send(t, sent.to, s, "t");
      if (all->rank() == sent.to) all->recv(t, sent.from, s, "t");
    }
    d.synchronize(s);
    return d.now();
  });
  std::vector<double> found;
  for (const Sent& sent : sends) found.push_back(of_rank[static_cast<size_t>(sent.to)]);
  return found;
}

}  // namespace

TEST_CASE("what would pass a NIC that is lost for good takes the others of its node") {
  const std::vector<Sent> both{{0, 2, 1}, {1, 3, 1}};
  CHECK(ends(2, 4, {}, both)[0] == about(1));
  // Gone before: both messages leave through one NIC.
  CHECK(ends(2, 4, {nic(0, 0, 0, kForever)}, both)[0] == about(2));
  CHECK(ends(2, 4, {nic(0, 0, 0, kForever)}, both)[1] == about(2));
  // Gone at 0.3 s: 0.7 GB of each are left, 1.4 s of one NIC.
  CHECK(ends(2, 4, {nic(0, 0, 0.3, kForever)}, both)[0] == about(1.7));
  // At the receiver's end it is the same.
  CHECK(ends(2, 4, {nic(2, 0, 0.3, kForever)}, both)[1] == about(1.7));
  // A message that has its way for itself loses nothing: the other NIC is idle.
  CHECK(ends(2, 4, {nic(0, 0, 0.3, kForever)}, {{0, 2, 1}})[0] == about(1));
  // Of four NICs three are left. Each takes 1/3 GB of the lost one's: 4/3 s of traffic. Those
  // thirds share with what is longer, so they are through after 2/3 s; the receiver's NIC takes 1
  // s.
  const std::vector<Sent> four{{0, 4, 1}, {1, 5, 1}, {2, 6, 1}, {3, 7, 1}};
  const std::vector<double> shared = ends(4, 8, {nic(0, 0, 0, kForever)}, four);
  CHECK(shared[0] == about(1));
  for (size_t i = 1; i < 4; ++i) CHECK(shared[i] == about(4. / 3));
  // Two are lost one after the other, the second while it carries for the first: at 0.5 s each of
  // four has 0.5 GB left; 2 GB over three take until 0.8 s to be 1.1 GB, which two carry in 0.55 s.
  const std::vector<double> twice =
      ends(4, 8, {nic(0, 0, 0.5, kForever), nic(1, 0, 0.8, kForever)}, four);
  CHECK(*std::max_element(twice.begin(), twice.end()) == about(1.35));
  // Gone after all have left.
  CHECK(ends(2, 4, {nic(0, 0, 5, kForever)}, both)[0] == about(1));
}

TEST_CASE("a node keeps a NIC, and flow keeps its routes") {
  CHECK_THROWS_WITH(ends(2, 4, {nic(0, 0, 1, kForever), nic(1, 0, 2, kForever)}, {{0, 2, 1}}),
                    Contains("node 0 loses every NIC for good (2 of 2)"));
  CHECK_THROWS_WITH(ends(2, 4, {nic(0, 0, 1, kForever)}, {{0, 2, 1}}, "flow"),
                    Contains("use fluid, or give \"to_seconds\""));
}

TEST_CASE("drawn faults come by their rate, each unit for itself, and again with the seed") {
  Fault f = nic(-1, 0.5, 10, 50'010);
  f.mean_between = 40;
  f.lasting = 10;
  const std::vector<Fault> drawn = draw_faults(f, 3, 6);
  // A gap of 40 s on average and 10 s of fault: 1,000 in 50,000 s, sd 4/5 of sqrt(1,000).
  CHECK(drawn.size() > 900);
  CHECK(drawn.size() < 1100);
  double free = 10, gaps = 0, longest = 0;
  for (const Fault& one : drawn) {
    CHECK(one.rank == 6);
    CHECK(one.left == 0.5);
    CHECK(one.to - one.from == Approx(10));
    CHECK(one.from >= free);
    gaps += one.from - free;
    longest = std::max(longest, one.from - free);
    free = one.to;
  }
  CHECK(gaps / static_cast<double>(drawn.size()) == Approx(40).epsilon(0.1));
  // Exponential: the longest of 1,000 is about ln(1,000) means.
  CHECK(longest > 3 * 40);
  CHECK(longest < 16 * 40);
  const auto starts = [](const std::vector<Fault>& faults) {
    std::vector<double> times;
    for (const Fault& one : faults) times.push_back(one.from);
    return times;
  };
  CHECK(starts(drawn) == starts(draw_faults(f, 3, 6)));
  CHECK(starts(drawn) != starts(draw_faults(f, 4, 6)));
  f.seed = 2;
  CHECK(starts(drawn) != starts(draw_faults(f, 3, 6)));
}

TEST_CASE("drawn faults slow what they strike") {
  // Every GPU half as fast for 1 s about every second, from the start: about half of its time.
  Case c;
  c.profile = ideal();
  c.scenario = toy_scenario(2);
  Fault f;
  f.rank = -1;
  f.left = 0.5;
  f.to = 1000;
  f.mean_between = f.lasting = 1;
  c.profile.faults = {f};
  const auto ends = c.numbers([](Backend& d) {
    const Stream s = d.stream("compute");
    Allocator memory(d, false);
    const Tensor y = memory.allocate({4}, DType::f32, MemoryClass::workspace, "y");
    for (int i = 0; i < 1000; ++i) d.launch(spin(y, 0.01), s);
    d.synchronize(s);
    return d.now();
  });
  for (const double end : ends) {
    CHECK(end > 10);  // 10 s without
    CHECK(end < 20);  // all the time
  }
  CHECK(ends[0] != ends[1]);
  // By hand from the faults themselves: a launch takes as long as the share at its start says.
  for (int64_t rank = 0; rank < 2; ++rank) {
    const std::vector<RateChange> changes = rate_changes(draw_faults(f, rank, rank));
    double time = 0;
    for (int i = 0; i < 1000; ++i) {
      double share = 1;
      for (const RateChange& change : changes)
        if (change.time <= time) share = change.share;
      time += 0.01 / share;
    }
    CHECK(ends[static_cast<size_t>(rank)] == about(time));
  }
}
