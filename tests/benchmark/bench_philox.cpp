// Draws per second of one core: what initialisation, dropout and router noise cost.

#include <benchmark/benchmark.h>

#include "core/base/philox.h"

namespace moetwin {
namespace {

constexpr int kDraws = 1 << 14;

template <class Draw>
void draws(benchmark::State& state, Draw draw) {
  const PhiloxKey key = philox_key(1, Purpose::init, 0, 0);
  uint64_t first = 0;
  for (auto _ : state) {
    double sum = 0;
    for (uint64_t i = first; i < first + kDraws; ++i) sum += draw(key, i);
    benchmark::DoNotOptimize(sum);
    first += kDraws;
  }
  state.SetItemsProcessed(state.iterations() * kDraws);
}

BENCHMARK_CAPTURE(draws, uniform, philox_uniform);
BENCHMARK_CAPTURE(draws, normal, philox_normal);
BENCHMARK_CAPTURE(draws, gumbel, philox_gumbel);

}  // namespace
}  // namespace moetwin

BENCHMARK_MAIN();
