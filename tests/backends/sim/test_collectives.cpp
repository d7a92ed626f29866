// Closed forms of collectives, their arithmetic, and what they do when members disagree.
#include <catch2/catch.hpp>
#include <numeric>

#include "core/base/error.h"
#include "tests/backends/sim/sim_case.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {
Approx exactly(double value) { return Approx(value).margin(2e-9).epsilon(1e-9); }
HostSizes sizes(std::vector<int64_t> values) {
  return std::make_shared<const std::vector<int64_t>>(std::move(values));
}
HostSizes begins(const HostSizes& rows) {
  std::vector<int64_t> at(rows->size());
  std::exclusive_scan(rows->begin(), rows->end(), at.begin(), int64_t{0});
  return sizes(at);
}
Case phantom(int64_t world, ClusterProfile profile = ideal()) {
  Case c;
  c.scenario = toy_scenario(world);
  c.scenario.training_config.numerics = "none";
  c.profile = std::move(profile);
  return c;
}
Tensor shape_only(int64_t bytes) {
  Tensor t;
  t.shape = {bytes / 4};
  return t;
}
}  // namespace

TEST_CASE("ring all-reduce takes 2(n-1)/n of the bytes and 2(n-1) latencies", "[P214]") {
  for (const int64_t n : {2, 4, 8}) {
    const auto ends = phantom(n, toy()).numbers([](Backend& d) {
      const Stream s = d.stream("comm");
      const auto world = d.communicator(all_ranks(d), "world");
      const Tensor t = shape_only(int64_t{1} << 30);
      world->all_reduce(t, t, ReduceOp::sum, s, "gradients");
      d.synchronize(s);
      return d.now();
    });
    const double size = 1 << 30, ranks = static_cast<double>(n);
    for (double end : ends)
      CHECK(end == exactly(1e-6 + 2 * (ranks - 1) * 1e-6 + 2 * (ranks - 1) / ranks * size / 10e9));
  }
}

TEST_CASE("sums are in f32 over ascending ranks and every rank gets them") {
  Case c;
  c.scenario = toy_scenario(4);
  const auto sums = c.numbers([](Backend& d) {
    Allocator memory(d, true);
    const Stream s = d.stream("comm");
    const auto world = d.communicator(all_ranks(d), "world");
    Tensor t = memory.allocate({3}, DType::f32, MemoryClass::gradients, "t");
    d.launch(count_up(t, static_cast<double>(10 * d.properties().rank)), s);
    world->all_reduce(t, t, ReduceOp::sum, s, "gradients");
    d.launch(axpb(t, 2, 1), s);
    const auto v = values_of(d, t, s);
    return v[0] + 1000.0 * v[1] + 1e6 * v[2];
  });
  for (double sum : sums) CHECK(sum == 121 + 1000.0 * 129 + 1e6 * 137);
}

TEST_CASE("all-to-all of a skewed matrix ends with its busiest port") {
  // Rank i sends (i + 1) * (j + 1) rows of 4 bytes * 1e6 to rank j.
  const int64_t n = 4;
  const auto ends = phantom(n).numbers([&](Backend& d) {
    const Stream s = d.stream("comm");
    const auto world = d.communicator(all_ranks(d), "world");
    std::vector<int64_t> to, from;
    for (int64_t j = 0; j < n; ++j) {
      to.push_back((d.properties().rank + 1) * (j + 1));
      from.push_back((j + 1) * (d.properties().rank + 1));
    }
    const HostSizes send = sizes(to), receive = sizes(from);
    Tensor t;
    t.shape = {100, 1'000'000};
    world->all_to_all_v(t, t, send, begins(send), receive, begins(receive), s, "dispatch");
    d.synchronize(s);
    return d.now();
  });
  // Rank 3 sends 4 * (1 + 2 + 3) to others: 24 rows out, 24 in; before that it reads and writes its
  // own 16 at 100 GB/s.
  for (double end : ends) CHECK(end == exactly(24 * 4e6 / 10e9 + 2 * 16 * 4e6 / 100e9));
}

TEST_CASE("members that disagree are named with what differs") {
  CHECK_THROWS_WITH(phantom(2).numbers([](Backend& d) {
    const Stream s = d.stream("comm");
    const auto world = d.communicator(all_ranks(d), "world");
    const Tensor t = shape_only(d.properties().rank == 0 ? 400 : 800);
    world->all_reduce(t, t, ReduceOp::sum, s, "gradients");
    d.synchronize(s);
    return d.now();
  }),
                    Contains("ranks 0 and 1 disagree") && Contains("100 x fp32") &&
                        Contains("200 x fp32") && Contains("gradients"));
}
