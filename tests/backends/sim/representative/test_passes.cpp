// Passes of micro-batches one after the other, by arithmetic: a host that runs ahead and one that
// waits, and what a tensor-parallel rank sends of a hidden state.
#include <catch2/catch.hpp>
#include <cstring>

#include "backends/sim/cost/framework.h"
#include "backends/sim/representative/compose.h"
#include "backends/sim/representative/estimate.h"
#include "backends/sim/representative/gathers_beside.h"
#include "core/ops/isa.h"
#include "core/ops/table.h"

using namespace moetwin;

namespace {

/// One kernel: so long on the host, then so long on the device.
Pass kernel(double host, double device) {
  Item item;
  item.clock = kComputeClock;
  item.host = host;
  item.host_bound = host + device;
  item.seconds = device;
  Pass pass;
  pass.whole = make_segment(ItemList{item});
  pass.pieces = {pass.whole};
  return pass;
}

double step(bool passes_wait, int64_t micro_batches) {
  BlockPasses passes;
  passes.forward = kernel(2, 1);
  passes.backward = kernel(1, 3);
  ChunkPasses chunk;
  chunk.blocks = {{1, &passes}};
  chunk.multiply();
  const StageRecord record;
  ComposeSetup setup;
  setup.schedule = "1f1b";
  setup.micro_batches = micro_batches;
  setup.passes_wait = passes_wait;
  StageSetup stage;
  stage.chunks = {&chunk};
  stage.record = &record;
  setup.stages = {stage};
  return compose(setup).seconds;
}

}  // namespace

TEST_CASE("a host that runs ahead is hidden by the longer of both, one that waits is not") {
  for (const int64_t m : {1, 2, 10}) {
    const double n = static_cast<double>(m);
    // The first forward ends at 2 + 1, its backward 3 later; from then on the device is never idle:
    // 1 + 3 a micro-batch against the host's 2 + 1.
    CHECK(step(false, m) == Approx(6 + 4 * (n - 1)));
    // Each pass from its first launch to its last kernel: (2 + 1) + (1 + 3).
    CHECK(step(true, m) == Approx(7 * n));
  }
}

TEST_CASE("gathers of parameters go on beside the next step's first forwards, but for the first") {
  const auto gained = [](double forward, double others, const GpuProfile& gpu) {
    BlockPasses passes;
    passes.forward = kernel(0.1, forward);
    ChunkPasses chunk;
    chunk.blocks = {{1, &passes}, {2, &passes}};
    // Four buckets of a second each, of which a rank sends 100 GB in all, and what is no gather.
    StageRecord record, longer;
    record.update.sent = {{"all_gather", "parameters", "", "dp", 8, 100e9, 0, 4, 4},
                          {"all_reduce", "gradient norm", "", "world", 8, 14, 0, 1, 9}};
    longer.update.sent = {{"all_gather", "parameters", "", "dp", 8, 100e9, 0, 4, others}};
    ComposeSetup setup;
    for (const StageRecord* of : {&record, &longer}) {
      StageSetup stage;
      stage.chunks = {&chunk};
      stage.record = of;
      setup.stages.push_back(stage);
    }
    return gained_beside_forward(setup, gpu);
  };
  GpuProfile gpu;
  CHECK(gained(5, 8, gpu) == Approx(3));  // all but the first second: 10 s of forwards are enough
  CHECK(gained(1.25, 8, gpu) == Approx(2.5));  // two blocks' forwards are all there is
  CHECK(gained(5, 2, gpu) == Approx(1.5));     // the other stage gains less, and all wait for it
  // 27 of 108 multiprocessors gone: what is beside takes 108 / 81 of its time.
  gpu.tiles.emplace();
  gpu.tiles->multiprocessors = 108;
  gpu.communication_multiprocessors = 27;
  gpu.memory_bandwidth = BytesPerSecond(2e12);
  CHECK(gained(5, 8, gpu) == Approx(3 * 81.0 / 108));
}

TEST_CASE("grouped products cost the host a launch for each expert, and the router its kernels") {
  const FrameworkCosts costs = framework_costs(KernelClass::megatron_core);
  OpCall call;
  call.op = &op_grouped_gemm;
  call.sizes = std::make_shared<const std::vector<int64_t>>(16, 256);
  CHECK(host_time_beside(costs, call).value == Approx(16 * costs.expert_product_seconds.value));
  CHECK(host_time_beside(framework_costs(KernelClass::moetwin), call).value == 0);
  call.op = &op_dispatch_plan;
  call.sizes = nullptr;
  CHECK(host_time_beside(costs, call).value == costs.routing_seconds.value);
  call.op = &op_gemm;
  CHECK(host_time_beside(costs, call).value == 0);
}

TEST_CASE("between stages a tensor-parallel rank of Megatron sends its part of a hidden state") {
  for (const bool sequence_parallel : {false, true})
    for (const char* kernels : {"megatron-2021", "megatron-core"}) {
      Scenario s;
      s.cluster.kernels = kernels;
      s.cluster.profile = "dgx-a100-80g";
      s.model_config.num_layers = 4;
      s.model_config.hidden_size = 1024;
      s.model_config.num_attention_heads = 16;
      s.model_config.vocab_size = 51200;
      s.model_config.sequence_length = 512;
      s.distributed_config.world_size = 8;
      s.distributed_config.tensor_parallel_size = 4;
      s.distributed_config.pipeline_parallel_size = 2;
      s.distributed_config.data_parallel_size = 1;
      s.distributed_config.sequence_parallel = sequence_parallel;
      s.training_config.dtype = "fp16";
      s.training_config.numerics = "none";
      s.training_config.micro_batch_size = 2;
      s.training_config.global_batch_size = 2 * 3;
      Estimator estimator(read_cluster_profile(s.cluster.profile, {TEST_CLUSTERS}),
                          [isa = best_isa()](const Op& op) { return reference_of(op, isa); });
      EstimateOptions options;
      options.traffic = true;
      const Estimate estimate = estimator.estimate(s, options);
      double sent = 0;
      for (const Sent& item : estimate.stages.front().sent)
        if (std::strcmp(item.purpose, "stage activations") == 0) sent += item.bytes;
      const bool part = sequence_parallel || std::string(kernels) == "megatron-2021";
      CHECK(sent == 3 * 2 * 512 * 1024 * 2 / (part ? 4.0 : 1.0));
    }
}
