// Host clock, launch overhead, run-ahead, order of streams and events. All figures by hand from the
// toy profile: 1 us a launch.
#include <catch2/catch.hpp>

#include "core/ops/gemm.h"
#include "tests/backends/sim/sim_case.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {
Approx exactly(double value) { return Approx(value).margin(1e-12).epsilon(1e-12); }
const Tensor kNothing;
Case phantom(int64_t world = 1) {
  Case c;
  c.scenario = toy_scenario(world);
  c.scenario.training_config.numerics = "none";
  return c;
}
}  // namespace

TEST_CASE("two seconds of work take exactly two seconds and one launch") {
  CHECK(phantom().numbers([](Backend& d) {
    const Stream s = d.stream("compute");
    d.launch(spin(kNothing, 2.0), s);
    CHECK(d.now() == 1e-6);  // the host does not wait
    d.synchronize(s);
    return d.now();
  })[0] == exactly(2.0 + 1e-6));
}

TEST_CASE("a host-bound run takes the launches' time, a device-bound one the work's") {
  const auto take = [](double seconds, int count) {
    return phantom().numbers([=](Backend& d) {
      const Stream s = d.stream("compute");
      for (int i = 0; i < count; ++i) d.launch(spin(kNothing, seconds), s);
      d.synchronize(s);
      return d.now();
    })[0];
  };
  CHECK(take(0.25e-6, 100) == exactly(100e-6 + 0.25e-6));
  CHECK(take(10e-6, 100) == exactly(1e-6 + 100 * 10e-6));
}

TEST_CASE("an op of several kernels costs the host one launch each") {
  CHECK(phantom().numbers([](Backend& d) {
    const Stream s = d.stream("compute");
    d.launch(spin(kNothing, 4 * 0.5e-6, 4), s);
    d.synchronize(s);
    return d.now();
  })[0] == exactly(4e-6 + 0.5e-6));
  CHECK(phantom().numbers([](Backend& d) {
    const Stream s = d.stream("compute");
    d.launch(spin(kNothing, 4 * 3e-6, 4), s);
    d.synchronize(s);
    return d.now();
  })[0] == exactly(1e-6 + 4 * 3e-6));
}

TEST_CASE("host time before a launch is not time on the device") {
  Case c = phantom();
  c.scenario.cluster.kernels = "megatron-core";
  c.scenario.training_config.dtype = "bf16";
  CHECK(c.numbers([](Backend& d) {
    Allocator memory(d, false);
    const Stream s = d.stream("compute");
    const auto tensor = [&](const Shape& shape) {
      return memory.allocate(shape, DType::bf16, MemoryClass::workspace, "t");
    };
    const HostSizes rows = std::make_shared<const std::vector<int64_t>>(4, 64);
    d.take_profile(true);
    d.launch(
        grouped_gemm(tensor({256, 64}), tensor({4, 64, 64}), {}, tensor({256, 64}), {}, {}, rows),
        s);
    d.synchronize(s);
    // The library's 60 us for each of four experts, and one launch of 15 us.
    CHECK(d.now() > 4 * 60e-6 + 15e-6);
    double busy = 0;
    for (const Interval& i : d.take_profile(true).intervals)
      if (i.stream >= 0) busy += i.end - i.start;
    CHECK(busy == exactly(d.now() - 4 * 60e-6 - 15e-6));
    return 1.0;
  })[0] == 1);
}

TEST_CASE("the host runs at most 1,024 launches ahead of a stream") {
  CHECK(phantom().numbers([](Backend& d) {
    const Stream s = d.stream("compute");
    for (int i = 0; i < 1024; ++i) d.launch(spin(kNothing, 1.0), s);
    CHECK(d.now() == exactly(1024e-6));
    d.launch(spin(kNothing, 1.0), s);  // waits for the end of the first
    return d.now();
  })[0] == exactly(1e-6 + 1.0 + 1e-6));
}

TEST_CASE("streams overlap, events order them") {
  CHECK(phantom().numbers([](Backend& d) {
    const Stream a = d.stream("a"), b = d.stream("b");
    d.launch(spin(kNothing, 3.0), a);
    d.launch(spin(kNothing, 2.0), b);
    d.synchronize(a);
    d.synchronize(b);
    return d.now();
  })[0] == exactly(1e-6 + 3.0));
  CHECK(phantom().numbers([](Backend& d) {
    const Stream a = d.stream("a"), b = d.stream("b");
    d.launch(spin(kNothing, 3.0), a);
    const Event e = d.record(a);
    d.launch(spin(kNothing, 5.0), a);  // after the event: not waited for
    d.wait(b, e);
    d.launch(spin(kNothing, 1.0), b);
    d.synchronize(b);
    return d.now();
  })[0] == exactly(1e-6 + 3.0 + 1.0));
}

TEST_CASE("host work is busy time of the host and delays launches") {
  CHECK(phantom().numbers([](Backend& d) {
    const Stream s = d.stream("compute");
    d.host_work(0.5, Activity::data);
    d.launch(spin(kNothing, 1.0), s);
    d.synchronize(s);
    const Profile p = d.take_profile(false);
    REQUIRE(p.intervals.size() == 3);
    CHECK(p.intervals[0].stream == -1);
    CHECK(p.intervals[0].activity == Activity::data);
    CHECK(p.intervals[0].end == exactly(0.5));
    CHECK(p.intervals[1].activity == Activity::host);
    CHECK(p.intervals[2].stream == 0);
    CHECK(p.intervals[2].start == exactly(0.5 + 1e-6));
    return d.now();
  })[0] == exactly(0.5 + 1e-6 + 1.0));
}

TEST_CASE("what stands behind a collective waits for it, through events too") {
  // Rank 1 comes 4 s later; rank 0's stream b waits for its stream a.
  const auto ends = phantom(2).numbers([](Backend& d) {
    const Stream a = d.stream("a"), b = d.stream("b");
    const auto world = d.communicator(all_ranks(d), "world");
    if (d.properties().rank == 1) d.launch(spin(kNothing, 4.0), a);
    world->barrier(a);
    const Event e = d.record(a);
    d.launch(spin(kNothing, 7.0), a);
    d.wait(b, e);
    d.launch(spin(kNothing, 1.0), b);
    d.synchronize(b);
    return d.now();
  });
  // Rank 1's work ends at 1 us + 4 s; the barrier goes up and down one level of 1 us.
  for (double end : ends) CHECK(end == exactly(1e-6 + 4.0 + 2e-6 + 1.0));
}

TEST_CASE("a host that waits for collectives launches nothing meanwhile") {
  // Rounds of 30 us of work, then 40 kB from each of 2 to the other: so long on the device that the
  // host, at 1 us a launch, is ahead wherever it may be.
  const auto take = [](bool waits, bool beside) {
    Case c = phantom(2);
    c.scenario.cluster.blocking_wait = waits;
    return c.numbers([beside](Backend& d) {
      const Stream compute = d.stream("compute"), other = d.stream("other");
      const auto all = d.communicator(all_ranks(d), "world");
      Tensor half, whole;
      half.shape = {10'000};
      whole.shape = {20'000};
      for (int i = 0; i < 10; ++i) {
        d.launch(spin(kNothing, 30e-6), compute);
        all->all_gather(half, whole, beside ? other : compute, "t");
      }
      d.synchronize(compute);
      return d.now();
    })[0];
  };
  const double ahead = take(false, false), waiting = take(true, false);
  // The first launch is seen in both, the nine others where the host has waited before them.
  CHECK(waiting - ahead == Approx(9e-6).margin(1e-9));
  // What another stream waits for is none of the host's business.
  CHECK(take(true, true) == exactly(take(false, true)));
}
