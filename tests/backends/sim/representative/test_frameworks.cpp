// What a framework's host does and copies beside its kernels is the same by arithmetic and on the
// fluid network.
#include <catch2/catch.hpp>

#include "backends/sim/representative/estimate.h"
#include "core/ops/isa.h"
#include "tests/backends/sim/representative/cases.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

/// Small layers, so that the host's times show.
Scenario small(const std::string& kernels) {
  Scenario s = random_scenario(0, 8, "uniform");
  s.distributed_config = {};
  s.model_config.hidden_size = 512;
  s.model_config.sequence_length = 512;
  s.model_config.num_layers = 4;
  s.model_config.moe_layer_config.moe_every_k_layers = 1;
  s.training_config.micro_batch_size = 1;
  s.training_config.recompute = "none";
  s.cluster.kernels = kernels;
  return s;
}

double estimated(const Scenario& scenario) {
  Estimator estimator(read_cluster_profile("dgx-a100-80g", {TEST_CLUSTERS}),
                      [isa = best_isa()](const Op& op) { return reference_of(op, isa); });
  return estimator.estimate(scenario).step_seconds;
}

}  // namespace

TEST_CASE("representative: a host that waits before each pass waits on the fluid network too") {
  Scenario s = small("megatron-2021");
  s.training_config.global_batch_size = 6;
  CHECK(simulate(s).seconds == Approx(estimated(s)).epsilon(0.03));
  s.distributed_config.world_size = 4;
  s.distributed_config.data_parallel_size = 1;
  s.distributed_config.pipeline_parallel_size = 4;
  const double plain = estimated(s);
  CHECK(simulate(s).seconds == Approx(plain).epsilon(0.03));
  // An engine's 5 ms for each of 2 passes of 6 micro-batches, and of the 3 that go ahead.
  s.cluster.stage_pass_seconds = 5e-3;
  CHECK(estimated(s) == Approx(plain + (6 + 3) * 2 * 5e-3).epsilon(0.03));
  CHECK(simulate(s).seconds == Approx(estimated(s)).epsilon(0.03));
}

TEST_CASE("fluid: a pass that gave way to another micro-batch goes on without waiting anew") {
  Scenario s = small("megatron-2021");
  s.distributed_config.world_size = 4;
  s.distributed_config.data_parallel_size = 1;
  s.distributed_config.expert_parallel_size = 4;
  // So much to compute that the host is ahead, where it may be.
  s.model_config.hidden_size = s.model_config.sequence_length = 2048;
  s.training_config.micro_batch_size = 2;
  s.training_config.global_batch_size = 4 * 8;
  const double plain = simulate(s).seconds;
  s.distributed_config.comm_optimization.micro_batch_overlap = true;
  // Two waits a pair, at its passes' begins. One at each hand-over leaves nothing of the gain.
  CHECK(simulate(s).seconds < 0.97 * plain);
}

TEST_CASE("fluid: tensor-parallel communication goes on beside products as in estimates") {
  for (const char* kernels : {"megatron-core", "megatron-2022"}) {
    Scenario s = small(kernels);
    DistributedConfig& d = s.distributed_config;
    d.world_size = 8;
    d.tensor_parallel_size = 4;
    d.data_parallel_size = 2;
    d.sequence_parallel = std::string(kernels) == "megatron-core";
    s.model_config.hidden_size = 4096;
    s.model_config.sequence_length = 2048;
    s.model_config.moe_layer_config.num_experts = 0;
    s.training_config.global_batch_size = 4;
    const double beside = simulate(s).seconds;
    INFO(kernels);
    CHECK(beside == Approx(estimated(s)).epsilon(0.01));
    // The same kernels with nothing beside them.
    s.cluster.kernels = std::string(kernels) == "megatron-core" ? "torch-compile" : "megatron-2021";
    CHECK(beside < 0.97 * simulate(s).seconds);
    // With experts, every one over all of a TP group.
    s.cluster.kernels = kernels;
    s.model_config.moe_layer_config.num_experts = 8;
    d.expert_parallel_size = 2;
    d.data_parallel_size = 1;
    CHECK(simulate(s).seconds == Approx(estimated(s)).epsilon(0.03));
  }
}

TEST_CASE("fluid: gathers of parameters go on beside the next forward as in estimates") {
  Scenario s = small("megatron-core");
  DistributedConfig& d = s.distributed_config;
  d.world_size = d.data_parallel_size = 8;
  d.zero_stage = 1;
  s.model_config.hidden_size = 4096;
  s.model_config.sequence_length = 2048;
  s.model_config.moe_layer_config.num_experts = 0;
  s.training_config.global_batch_size = 8;
  s.training_config.steps = 3;  // the second waits for the gathers of the first
  const double beside = simulate(s).seconds;
  CHECK(beside == Approx(estimated(s)).epsilon(0.05));
  s.cluster.kernels = "torch-compile";
  const double waiting = simulate(s).seconds;
  CHECK(beside < 0.97 * waiting);
  CHECK(waiting == Approx(estimated(s)).epsilon(0.03));
}

TEST_CASE("representative: gathered parameters are copied on the fluid network too") {
  Scenario s = small("torch-fsdp");
  s.distributed_config.world_size = s.distributed_config.data_parallel_size = 8;
  s.distributed_config.zero_stage = 3;
  // As much to compute as to gather, so that what is copied is hidden by neither.
  s.model_config.hidden_size = 2048;
  s.model_config.sequence_length = 1024;
  s.training_config.micro_batch_size = 4;
  s.training_config.global_batch_size = 8 * 8;
  CHECK(simulate(s).seconds == Approx(estimated(s)).epsilon(0.03));
}

TEST_CASE("representative: a host that waits for collectives waits on the fluid network too") {
  Scenario s = small("megatron-2021");
  s.distributed_config.world_size = 4;
  s.distributed_config.data_parallel_size = 1;
  s.distributed_config.tensor_parallel_size = 4;
  // So much to compute that the host is ahead, where it may be.
  s.model_config.hidden_size = s.model_config.sequence_length = 2048;
  s.training_config.micro_batch_size = 4;
  s.training_config.global_batch_size = 8;
  const double ahead = estimated(s);
  s.cluster.blocking_wait = true;
  const double waiting = estimated(s);
  // 4 all-reduces a layer and micro-batch, after each of which the device waits for a launch of
  // 100 us in the forward or 40 us in the backward.
  const double layers = static_cast<double>(s.model_config.num_layers) * 2;
  CHECK(waiting > ahead + layers * 2 * (100e-6 + 40e-6));
  CHECK(simulate(s).seconds == Approx(waiting).epsilon(0.03));
}

TEST_CASE("speeds of links and numbers of nodes change what a step takes", "[P192]") {
  Scenario s = small("moetwin");
  const auto seconds = [&](int64_t world, double speed) {
    s.distributed_config.world_size = world;
    s.distributed_config.expert_parallel_size = 8;
    s.distributed_config.data_parallel_size = world / 8;
    s.training_config.global_batch_size = world;
    ClusterProfile profile = read_cluster_profile("dgx-a100-80g", {TEST_CLUSTERS});
    profile.nvlink.bandwidth = BytesPerSecond(profile.nvlink.bandwidth.value * speed);
    profile.nic.bandwidth = BytesPerSecond(profile.nic.bandwidth.value * speed);
    return estimate(s, profile).step_seconds;
  };
  for (const int64_t world : {8, 64}) {
    CHECK(seconds(world, 0.1) > 1.1 * seconds(world, 1));
    CHECK(seconds(world, 1) > 1.01 * seconds(world, 10));
  }
  CHECK(seconds(64, 1) > 1.1 * seconds(8, 1));
}

TEST_CASE("experts beside tensor parallelism, with and without expert parallelism", "[P205]") {
  Scenario s = small("moetwin");
  s.model_config.moe_layer_config.num_experts = 4;
  s.model_config.moe_layer_config.top_k = 2;
  for (const int64_t ep : {1, 2}) {
    s.distributed_config.tensor_parallel_size = 4;
    s.distributed_config.expert_parallel_size = ep;
    s.distributed_config.data_parallel_size = 1;
    s.distributed_config.world_size = 4 * ep;
    s.training_config.global_batch_size = 2 * ep;
    CHECK(simulate(s).seconds == Approx(estimated(s)).epsilon(0.03));
  }
}
