// Context parallelism: what it adds up to, by arithmetic and on the fluid network.
#include <catch2/catch.hpp>
#include <string>

#include "backends/sim/representative/estimate.h"
#include "core/ops/attention.h"
#include "core/ops/isa.h"
#include "tests/backends/sim/representative/cases.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

Estimate estimated(const Scenario& scenario, bool traffic = false) {
  Estimator estimator(read_cluster_profile("dgx-a100-80g", {TEST_CLUSTERS}),
                      [isa = best_isa()](const Op& op) { return reference_of(op, isa); });
  EstimateOptions options;
  options.traffic = traffic;
  return estimator.estimate(scenario, options);
}

/// 8 ranks, 2 sequences of 8192 at a time, 2 layers of 16 heads of 64.
Scenario long_sequences(int64_t cp, const std::string& exchange) {
  Scenario s = random_scenario(0, 8, "uniform");
  s.distributed_config = {};
  s.distributed_config.world_size = 8;
  s.distributed_config.data_parallel_size = 8;
  s.distributed_config.context_parallel_size = cp;
  s.distributed_config.context_parallel_exchange = exchange;
  s.model_config.hidden_size = 1024;
  s.model_config.num_attention_heads = 16;
  s.model_config.num_key_value_heads = 8;
  s.model_config.sequence_length = 8192;
  s.model_config.num_layers = 2;
  s.model_config.position_embedding = "learned";
  s.model_config.moe_layer_config.num_experts = 0;
  s.training_config.micro_batch_size = 1;
  s.training_config.global_batch_size = 8 / cp * 2;
  s.training_config.recompute = "none";
  return s;
}

/// Bytes that a rank sends on the group in a step.
double sent_on(const Estimate& estimate, const std::string& group) {
  double bytes = 0;
  for (const Sent& sent : estimate.stages[0].sent)
    if (sent.group == group) bytes += sent.bytes;
  return bytes;
}

}  // namespace

TEST_CASE("context parallel: keys and values are sent as often as the exchange needs") {
  const double tokens = 8192.0 / 4, layers = 2, micro_batches = 2;
  const double kv = tokens * 8 * (64 + 64) * 2, all_heads = tokens * (16 + 2 * 8) * 64 * 2;
  const auto a_step = [&](const char* exchange) {
    return sent_on(estimated(long_sequences(4, exchange), true), "cp") / layers / micro_batches;
  };
  // To three others forward; again backward, and their gradient as often.
  CHECK(a_step("p2p") == Approx((3 + 3 + 3) * kv));
  // Gathered for both passes, their gradient scattered: three of four parts each time.
  CHECK(a_step("all_gather") == Approx((3 + 3 + 3) * kv));
  // Queries, keys and values to where their heads are, and the output back; so their gradients.
  CHECK(a_step("a2a") == Approx(2 * 0.75 * (all_heads + tokens * 16 * 64 * 2)));
  CHECK(sent_on(estimated(long_sequences(1, "p2p"), true), "cp") == 0);
}

TEST_CASE("context parallel: ranks share the pairs of queries and keys evenly") {
  // A part of 1024 tokens of 8192: its own causal half, and half the keys of seven others.
  AttentionWork own, other;
  for (AttentionWork* w : {&own, &other}) w->sequence = 1024, w->head_dim = 64, w->heads = 2;
  other.causal = false, other.other_keys = 512;
  KernelList kernels;
  const KernelChoice flash = KernelClass::megatron_core;
  attention_kernels(own, false, flash, kernels);
  attention_kernels(other, false, flash, kernels);
  REQUIRE(kernels.size() == 2);
  // Two products of a multiply and an add.
  CHECK(kernels[0].flop == 2 * 2 * 2 * 64 * (1024.0 * 1025 / 2));
  CHECK(kernels[1].flop == 2 * 2 * 2 * 64 * (1024.0 * 512));
  const double all = 2 * 2 * 2 * 64 * (8192.0 * 8193 / 2);
  CHECK(8 * (kernels[0].flop + 7 * kernels[1].flop) == Approx(all));
}

TEST_CASE("context parallel: a rank holds its part of the activations") {
  const auto activations = [](const Estimate& e) {
    return static_cast<double>(e.stages[0].classes[static_cast<size_t>(MemoryClass::activations)]);
  };
  const Estimate whole = estimated(long_sequences(1, "p2p"));
  for (const char* exchange : {"p2p", "all_gather", "a2a"}) {
    const Estimate quarter = estimated(long_sequences(4, exchange));
    INFO(exchange);
    CHECK(activations(quarter) < 0.30 * activations(whole));
    CHECK(activations(quarter) > 0.20 * activations(whole));
    CHECK(quarter.stages[0].classes[static_cast<size_t>(MemoryClass::parameters)] ==
          whole.stages[0].classes[static_cast<size_t>(MemoryClass::parameters)]);
  }
}

TEST_CASE("context parallel: the fluid network has what the estimate has") {
  for (const char* exchange : {"p2p", "all_gather", "a2a"})
    for (const int64_t cp : {2, 4}) {
      Scenario s = long_sequences(cp, exchange);
      INFO(exchange << " " << cp);
      CHECK(estimated(s).step_seconds == Approx(simulate(s).seconds).epsilon(0.03));
      // Beside tensor and pipeline parallelism, with experts over it.
      s.distributed_config.tensor_parallel_size = 2;
      s.distributed_config.sequence_parallel = true;
      s.distributed_config.expert_tensor_parallel_size = 1;
      s.distributed_config.parallel_folding = true;
      s.distributed_config.expert_parallel_size = 8;
      s.distributed_config.data_parallel_size = 1;
      s.model_config.moe_layer_config.num_experts = 8;
      s.model_config.moe_layer_config.moe_every_k_layers = 1;
      s.training_config.global_batch_size = 4;
      CHECK(estimated(s).step_seconds == Approx(simulate(s).seconds).epsilon(0.03));
      CHECK(static_cast<double>(estimated(s).peak_bytes) ==
            Approx(static_cast<double>(simulate(s).peak_bytes)).epsilon(0.05));
    }
}

TEST_CASE("context parallel: a ring hides its exchanges behind attention where that takes longer") {
  Scenario ring = long_sequences(4, "p2p"), gathered = long_sequences(4, "all_gather");
  for (Scenario* s : {&ring, &gathered}) {
    s->model_config.sequence_length = 65536;
    s->training_config.global_batch_size = 2;
  }
  CHECK(estimated(ring).parts[Part::other_communication] <
        estimated(gathered).parts[Part::other_communication]);
}
