// Kernels beside a collective: it takes multiprocessors from products, and memory bandwidth from
// everything else. All figures by hand: 100 multiprocessors of which a collective takes 20, 100
// GB/s of memory, 10 GB/s between GPUs.
#include <catch2/catch.hpp>

#include "tests/backends/sim/sim_case.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

Approx exactly(double value) { return Approx(value).margin(1e-9).epsilon(1e-9); }
const Tensor kNothing;

Case contended(int64_t multiprocessors = 20) {
  Case c;
  c.scenario = toy_scenario(2);
  c.scenario.training_config.numerics = "none";
  c.profile = ideal();
  c.profile.gpu.kernel_seconds = Seconds(0);
  c.profile.gpu.memory = Bytes(1e12);
  c.profile.gpu.tiles.emplace();
  c.profile.gpu.tiles->multiprocessors = 100;
  c.profile.gpu.communication_multiprocessors = multiprocessors;
  return c;
}

/// Ends of a stream with `work` seconds of kernels in pieces of a tenth, beside an all-reduce of 2
/// ranks that sends 10 GB in one second; of the host that waits for both.
struct Ends {
  double compute = 0, both = 0;
};
Ends run(const Case& c, double work, KernelKind kind, int64_t times = 1) {
  const auto take = [&](bool both) {
    return c.numbers([=](Backend& d) {
      Allocator memory(d, false);
      const Stream compute = d.stream("compute"), other = d.stream("other");
      const Tensor data = memory.allocate({2500000000}, DType::f32, MemoryClass::gradients, "data");
      const auto group = d.communicator(all_ranks(d), "all");
      for (int64_t i = 0; i < times; ++i)
        group->all_reduce(data, data, ReduceOp::sum, other, "test");
      for (int64_t i = 0; i < 10; ++i) d.launch(spin(kNothing, work / 10, 1, kind), compute);
      if (both) d.wait(compute, d.record(other));
      d.synchronize(other);
      d.synchronize(compute);
      return d.now();
    })[0];
  };
  return {take(false), take(true)};
}

}  // namespace

TEST_CASE("kernels beside a collective take longer by what it takes from them", "[P189]") {
  // Products have 80 of 100 multiprocessors for a second: in it 0.8 s of work are done.
  CHECK(run(contended(), 5, KernelKind::gemm).compute == exactly(5.2));
  // 30 of 100 GB/s pass for the collective, so 0.7 s of others' work are done.
  CHECK(run(contended(), 5, KernelKind::elementwise).compute == exactly(5.3));
  // 0.4 s of work are through before the collective is: they take 0.4 / 0.7.
  CHECK(run(contended(), 0.4, KernelKind::elementwise).both == exactly(1));
  // Two collectives, one after the other.
  CHECK(run(contended(), 5, KernelKind::gemm, 2).compute == exactly(5.4));
  // A machine that says nothing of it loses nothing.
  CHECK(run(contended(0), 5, KernelKind::gemm).compute == exactly(5));
}

TEST_CASE(
    "what a collective slows shows in the work, and is hidden where it is waited for anyway") {
  CHECK(run(contended(), 0.9, KernelKind::gemm).both == exactly(0.9 + 0.2));
  CHECK(run(contended(), 0.5, KernelKind::gemm).both == exactly(1));
}
