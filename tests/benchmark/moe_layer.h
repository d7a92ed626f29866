#pragma once
// One MoE layer, forward and backward, with real arithmetic on the modelled machine: for
// benchmarks.

#include <chrono>
#include <memory>
#include <vector>

#include "core/moe/balance.h"
#include "core/moe/layer.h"
#include "core/ops/elementwise.h"
#include "core/parallel/communicators.h"
#include "core/parallel/flat_parameters.h"
#include "tests/support/train_run.h"

namespace moetwin::test {

struct MoeLayerSize {
  int64_t tokens = 2048, hidden = 512, width = 2048, experts = 8, top_k = 2;
};

/// Seconds on the wall of each of `repeats` forward and backward passes over `size.tokens` tokens,
/// cut over `ranks` EP ranks that `threads` workers compute. Runs a simulation: once per process.
inline std::vector<double> time_moe_layer(const MoeLayerSize& size, int64_t ranks, int threads,
                                          int repeats) {
  Scenario s;
  s.model_config.hidden_size = size.hidden;
  s.model_config.num_layers = 1;
  s.model_config.sequence_length = size.tokens / ranks;
  s.model_config.moe_layer_config.num_experts = size.experts;
  s.model_config.moe_layer_config.top_k = size.top_k;
  s.model_config.moe_layer_config.expert_hidden_size = size.width;
  s.model_config.moe_layer_config.expert_bias = false;
  s.distributed_config.world_size = s.distributed_config.expert_parallel_size = ranks;
  s.training_config.global_batch_size = ranks;
  s.cluster.profile = "toy-8gpu";
  const Grid grid(s.distributed_config, size.experts, size.width);
  std::vector<double> seconds;
  const auto cluster = make_sim_cluster(s, sim_options(threads));
  cluster->run([&](Backend& device) {
    Allocator memory(device, false);
    Context context{device, memory, {}, DType::f32, 1};
    context.streams = {device.stream("compute"), device.stream("dispatch"),
                       device.stream("reduction")};
    const Communicators communicators = make_communicators(device, grid, s);
    const int64_t rank = device.properties().rank;
    Tensor losses = memory.allocate({4 + size.experts}, DType::f32, MemoryClass::router, "losses");
    BalanceState balance(context, s.model_config, {0}, losses, communicators.balance.get());
    ParameterSet parameters;
    const RouterSetup router{s.model_config,         s.routing, "moe",   0,      0, 0, rank, ranks,
                             grid.expert_sharding(), true,      balance, nullptr};
    DispatcherConfig dispatch;
    dispatch.experts = size.experts;
    dispatch.top_k = size.top_k;
    dispatch.moe = s.model_config.moe_layer_config;
    auto router_part = make_router(parameters, router);
    auto experts = std::make_unique<GroupedExperts>(parameters, s.model_config, grid,
                                                    grid.coordinates(rank), "experts", 0.02, 0);
    MoeLayer layer(std::move(router_part),
                   std::make_unique<AllToAllDispatcher>(dispatch, grid, communicators.ep.get()),
                   std::move(experts), {}, 1);
    auto groups = make_flat_groups(context, parameters, grid, s.distributed_config, false);
    for (FlatGroup& group : groups) group.initialise(context);
    MicroBatch batch;
    batch.sequence_length = size.tokens / ranks;
    const Tensor x = context.activation({batch.tokens(), size.hidden}, "x");
    const Tensor dy = context.activation(x.shape, "dy");
    InitAttr draw;
    draw.key = philox_key(1, Purpose::data, 0, static_cast<uint32_t>(rank));
    draw.std = 1;
    draw.global[1] = draw.local[1] = batch.tokens();
    draw.global[2] = draw.local[2] = size.hidden;
    context.launch(init_normal(x, draw));
    draw.std = 0.01;
    context.launch(init_normal(dy, draw));
    device.synchronize(context.streams.compute);
    for (int i = 0; i < repeats; ++i) {
      const auto start = std::chrono::steady_clock::now();
      MoeLayer::Saved saved;
      layer.forward(context, batch, x, saved);
      layer.backward(context, batch, dy, saved);
      device.synchronize(context.streams.compute);
      if (rank == 0)
        seconds.push_back(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
  });
  return seconds;
}

}  // namespace moetwin::test
