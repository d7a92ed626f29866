// Layouts estimated a second by one core, time and memory: a model of 32 layers with 64 experts
// top-2 on 256 GPUs under every combination of the axes below, half of them balanced, half with a
// hot rank (W2). `cold` begins with nothing kept; `warm` asks again for what was asked before.
#include <benchmark/benchmark.h>

#include "backends/sim/representative/estimate.h"
#include "core/ops/isa.h"

namespace {

using namespace moetwin;

std::vector<Scenario> layouts() {
  std::vector<Scenario> all;
  for (const int64_t tp : {1, 2, 4, 8})
    for (const int64_t ep : {1, 2, 4, 8, 16})
      for (const int64_t pp : {1, 2, 4, 8})
        for (const int64_t micro_batch : {1, 2, 4})
          for (const int zero : {0, 1})
            for (const char* recompute : {"none", "selective", "full"})
              for (const char* source : {"uniform", "W2"}) {
                if (tp * ep * pp > 256) continue;
                Scenario s;
                s.model_config.hidden_size = 4096;
                s.model_config.num_layers = 32;
                s.model_config.num_attention_heads = 32;
                s.model_config.vocab_size = 32000;
                s.model_config.sequence_length = 4096;
                s.model_config.moe_layer_config.num_experts = 64;
                s.model_config.moe_layer_config.expert_hidden_size = 1024;
                DistributedConfig& d = s.distributed_config;
                d.world_size = 256;
                d.tensor_parallel_size = tp;
                d.sequence_parallel = tp > 1;
                d.expert_parallel_size = ep;
                d.pipeline_parallel_size = pp;
                d.data_parallel_size = 256 / (tp * ep * pp);
                d.zero_stage = zero;
                s.training_config.numerics = "none";
                s.training_config.dtype = "bf16";
                s.training_config.recompute = recompute;
                s.training_config.micro_batch_size = micro_batch;
                s.training_config.global_batch_size = 2048;
                s.routing.without_numerics = source;
                all.push_back(std::move(s));
              }
  return all;
}

void estimates(benchmark::State& state, bool warm) {
  const std::vector<Scenario> scenarios = layouts();
  const ClusterProfile profile = read_cluster_profile("dgx-a100-80g", {BENCHMARK_CLUSTERS});
  const auto references = [isa = best_isa()](const Op& op) { return reference_of(op, isa); };
  auto estimator = std::make_unique<Estimator>(profile, references);
  if (warm)
    for (const Scenario& s : scenarios) estimator->estimate(s);
  for (auto run : state) {
    if (!warm) estimator = std::make_unique<Estimator>(profile, references);
    for (const Scenario& s : scenarios) benchmark::DoNotOptimize(estimator->estimate(s));
  }
  state.counters["layouts"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(scenarios.size()),
      benchmark::Counter::kIsRate);
}

void cold(benchmark::State& state) { estimates(state, false); }
void warm(benchmark::State& state) { estimates(state, true); }
BENCHMARK(cold)->Unit(benchmark::kMillisecond);
BENCHMARK(warm)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
