// What a modelled step costs: 1,024 ranks x 32 layers without numerics, per layer 80 launches of
// one kernel and 4 collectives (two all-to-alls, two all-reduces) in groups of 8, and one
// all-reduce over everybody at the end. `launches` and `collectives` are per second of wall time.
#include <benchmark/benchmark.h>

#include "backends/sim/cluster.h"
#include "tests/support/in_child.h"

namespace {

using namespace moetwin;

constexpr int64_t kLayers = 32, kLaunches = 80, kCollectives = 4, kGroup = 8;

void check(const OpCall&) {}
void kernels(const OpCall&, KernelClass, KernelList& out) {
  KernelWork work;
  work.bytes = 20e6;
  out.push_back(work);
}
int64_t workspace(const OpCall&) { return 0; }
const Op kOp{"phantom", 0, {}, check, kernels, workspace};

double step(int64_t world, bool launches, bool collectives) {
  Scenario scenario;
  scenario.distributed_config.world_size = world;
  scenario.training_config.numerics = "none";
  SimOptions options;
  double end = 0;
  const auto cluster = make_sim_cluster(
      scenario, read_cluster_profile("dgx-a100-80g", {BENCHMARK_CLUSTERS}), options);
  cluster->run([&](Backend& device) {
    const Stream compute = device.stream("compute"), comm = device.stream("comm");
    Group mine;
    mine.base = device.properties().rank / kGroup * kGroup;
    mine.n1 = kGroup;
    Group all;
    all.n1 = world;
    const auto group = device.communicator(mine, "ep");
    const auto everybody = device.communicator(all, "world");
    const auto rows = std::make_shared<const std::vector<int64_t>>(kGroup, 512);
    const auto begin = std::make_shared<const std::vector<int64_t>>(kGroup, 0);
    Tensor tokens, gradients;
    tokens.shape = {512 * kGroup, 4096};
    gradients.shape = {1 << 20};
    OpCall call;
    call.op = &kOp;
    for (int64_t layer = 0; layer < kLayers; ++layer)
      for (int64_t part = 0; part < kCollectives; ++part) {
        if (launches)
          for (int64_t i = 0; i < kLaunches / kCollectives; ++i) device.launch(call, compute);
        if (!collectives) continue;
        device.wait(comm, device.record(compute));
        if (part < 2)
          group->all_to_all_v(tokens, tokens, rows, begin, rows, begin, comm, "dispatch");
        else
          group->all_reduce(gradients, gradients, ReduceOp::sum, comm, "gradients");
        device.wait(compute, device.record(comm));
      }
    everybody->all_reduce(gradients, gradients, ReduceOp::sum, comm, "norm");
    device.synchronize(comm);
    end = device.now();
  });
  return end;
}

void simulate(benchmark::State& state, bool launches, bool collectives) {
  const int64_t world = state.range(0);
  double end = 0;
  for (auto run : state) end = test::in_child([&] { return step(world, launches, collectives); });
  const auto layers = static_cast<double>(state.iterations() * world * kLayers);
  state.counters["simulated_ms"] = 1e3 * end;
  if (launches)
    state.counters["launches"] =
        benchmark::Counter(layers * kLaunches, benchmark::Counter::kIsRate);
  if (collectives)
    state.counters["collectives"] = benchmark::Counter(
        layers * kCollectives / static_cast<double>(kGroup), benchmark::Counter::kIsRate);
}

void launches_only(benchmark::State& state) { simulate(state, true, false); }
void collectives_only(benchmark::State& state) { simulate(state, false, true); }
void whole_step(benchmark::State& state) { simulate(state, true, true); }
BENCHMARK(launches_only)->Arg(1024)->Unit(benchmark::kSecond)->UseRealTime();
BENCHMARK(collectives_only)->Arg(1024)->Unit(benchmark::kSecond)->UseRealTime();
BENCHMARK(whole_step)->Arg(8)->Arg(64)->Arg(1024)->Unit(benchmark::kSecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
