// What a modelled step costs: 1,024 ranks x 32 layers without numerics, per layer 80 launches of
// one kernel and 4 collectives (two all-to-alls, two all-reduces) in groups of 8, and one
// all-reduce over everybody at the end. `launches` and `collectives` are per second of wall time.
// And what the training program itself costs: the step of scenarios/scale-64-experts.json.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <chrono>
#include <functional>
#include <string>

#include "backends/sim/cluster.h"
#include "core/ops/isa.h"
#include "core/record/recorder.h"
#include "core/scenario/read.h"
#include "core/train/trainer.h"
#include "tests/support/in_child.h"

namespace {

using namespace moetwin;

constexpr int64_t kLayers = 32, kLaunches = 80, kCollectives = 4, kGroup = 8;

void check(const OpCall&) {}
void kernels(const OpCall&, const KernelChoice&, KernelList& out) {
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

/// One collective of 64 MiB a rank over everybody: an all-to-all(v) with counts of every pair, or
/// an all-reduce over rings. What the process uses is what matters: no wall time.
double collective(int64_t world, bool exchange) {
  Scenario scenario;
  scenario.distributed_config.world_size = world;
  scenario.training_config.numerics = "none";
  scenario.cluster.collective_algorithm = "ring";
  double end = 0;
  const auto cluster = make_sim_cluster(
      scenario, read_cluster_profile("dgx-a100-80g", {BENCHMARK_CLUSTERS}), SimOptions());
  cluster->run([&](Backend& device) {
    const Stream stream = device.stream("comm");
    Group all;
    all.n1 = world;
    const auto everybody = device.communicator(all, "world");
    const int64_t rank = device.properties().rank, row = 1024, rows = (64 << 20) / row / world;
    Tensor bytes;
    bytes.shape = {rows * world, row / 4};
    if (exchange) {
      // Every pair its own count, the same from both sides.
      std::vector<int64_t> sent, taken;
      for (int64_t other = 0; other < world; ++other) {
        sent.push_back(rows / 2 + (rank * 31 + other * 17) % rows);
        taken.push_back(rows / 2 + (other * 31 + rank * 17) % rows);
      }
      const auto share = [](std::vector<int64_t> v) {
        return std::make_shared<const std::vector<int64_t>>(std::move(v));
      };
      const auto begin = share(std::vector<int64_t>(static_cast<size_t>(world), 0));
      everybody->all_to_all_v(bytes, bytes, share(std::move(sent)), begin, share(std::move(taken)),
                              begin, stream, "dispatch");
    } else {
      everybody->all_reduce(bytes, bytes, ReduceOp::sum, stream, "gradients");
    }
    device.synchronize(stream);
    end = device.now();
  });
  return end;
}

/// What children use of CPU time and memory while `body` runs.
void measure(benchmark::State& state, const std::function<double()>& body) {
  double end = 0;
  rusage before{}, after{};
  getrusage(RUSAGE_CHILDREN, &before);
  for (auto run : state) end = test::in_child(body, {std::chrono::minutes(20)});
  getrusage(RUSAGE_CHILDREN, &after);
  const auto seconds = [](const rusage& r) {
    return static_cast<double>(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
  };
  state.counters["simulated_ms"] = 1e3 * end;
  state.counters["cpu_s"] =
      (seconds(after) - seconds(before)) / static_cast<double>(state.iterations());
  state.counters["peak_MB"] = static_cast<double>(after.ru_maxrss) / 1e3;
}
void all_to_all_64_MiB(benchmark::State& state) {
  measure(state, [&] { return collective(state.range(0), true); });
}
void ring_all_reduce_64_MiB(benchmark::State& state) {
  measure(state, [&] { return collective(state.range(0), false); });
}
BENCHMARK(ring_all_reduce_64_MiB)
    ->Arg(1024)
    ->Unit(benchmark::kSecond)
    ->UseRealTime()
    ->Iterations(3);
BENCHMARK(all_to_all_64_MiB)->Arg(1024)->Unit(benchmark::kSecond)->UseRealTime()->Iterations(3);

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

/// The step as `moetwin run scenarios/scale-64-experts.json --gpus N` has it, without files.
double training(int64_t gpus) {
  const std::string n = std::to_string(gpus);
  const Scenario scenario =
      read_scenario(std::string(MOETWIN_SOURCE_SCENARIOS) + "/scale-64-experts.json",
                    {"distributed_config.world_size=" + n, "training_config.global_batch_size=" + n,
                     "distributed_config.data_parallel_size=" + std::to_string(gpus / 8)});
  const Grid grid(scenario.distributed_config, scenario.model_config.moe_layer_config.num_experts,
                  scenario.model_config.expert_width());
  SimOptions options;
  options.profile_directories = {BENCHMARK_CLUSTERS};
  options.references = [isa = best_isa()](const Op& op) { return reference_of(op, isa); };
  const auto cluster = make_sim_cluster(scenario, options);
  RunInfo info;
  info.device = cluster->device();
  Recorder recorder(scenario, grid, info);
  TrainerServices services;
  services.recorder = &recorder;
  cluster->train(scenario, grid, services, nullptr);
  return recorder.finish({}).step_seconds_median;
}
// The largest first would hide the memory of the others: ru_maxrss is of all children so far.
void training_step(benchmark::State& state) {
  measure(state, [&] { return training(state.range(0)); });
}
BENCHMARK(training_step)
    ->Arg(64)
    ->Arg(1024)
    ->Arg(4096)
    ->Arg(16384)
    ->Unit(benchmark::kSecond)
    ->UseRealTime()
    ->Iterations(1);

}  // namespace

BENCHMARK_MAIN();
