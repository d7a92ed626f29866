// One MoE layer, forward and backward (T=2048, H=512, F=2048, E=8, k=2, fp32), on one worker and on
// two (as two EP ranks that share the tokens). Wall seconds of one pass. moe_layer_vs_pytorch.py
// sets it beside PyTorch.

#include <benchmark/benchmark.h>

#include <algorithm>

#include "tests/benchmark/moe_layer.h"
#include "tests/support/in_child.h"

namespace {

void moe_layer(benchmark::State& state) {
  using namespace moetwin::test;
  const auto workers = static_cast<int>(state.range(0));
  const MoeLayerSize size;
  for (auto _ : state) {
    std::vector<double> seconds =
        in_child([&] { return time_moe_layer(size, workers, workers, 7); });
    std::sort(seconds.begin(), seconds.end());
    state.SetIterationTime(seconds[seconds.size() / 2]);
  }
  // Two products forward, four backward, each 2 k T H F.
  const double flop =
      12.0 * static_cast<double>(size.top_k * size.tokens * size.hidden * size.width);
  state.counters["flop_per_second"] =
      benchmark::Counter(flop, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(moe_layer)->Arg(1)->Arg(2)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
