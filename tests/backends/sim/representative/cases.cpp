#include "tests/backends/sim/representative/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/train_run.h"

namespace moetwin::test {

Scenario random_scenario(uint64_t seed, int64_t most_ranks, const std::string& source) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::vector<int64_t> from) { return from[random() % from.size()]; };
  const auto chance = [&](double p) { return static_cast<double>(random() % 1000) < 1000 * p; };
  Scenario s;
  s.name = fmt::format("random-{}", seed);
  ModelConfig& m = s.model_config;
  MoeLayerConfig& moe = m.moe_layer_config;
  DistributedConfig& d = s.distributed_config;
  TrainingConfig& t = s.training_config;
  m.hidden_size = pick({512, 1024, 2048, 4096});
  m.num_attention_heads = 16;
  m.num_key_value_heads = pick({0, 8});
  m.vocab_size = pick({8000, 32000});
  m.sequence_length = pick({512, 1024, 2048});
  m.normalization = chance(0.5) ? "rmsnorm" : "layernorm";
  m.position_embedding = chance(0.5) ? "rotary" : "learned";
  m.tie_embeddings = chance(0.5);
  moe.num_experts = pick({8, 16, 32});
  moe.top_k = pick({1, 2, 4});
  moe.moe_every_k_layers = pick({1, 2});
  moe.expert_hidden_size = pick({1024, 2048, 4096});
  moe.expert_activation = chance(0.5) ? "swiglu" : "gelu";
  if (chance(0.3)) moe.shared_expert_hidden_size = 1024;
  if (chance(0.3)) moe.capacity_factor = 1.25;
  for (;;) {
    d.tensor_parallel_size = pick({1, 1, 2, 4});
    d.expert_parallel_size = pick({1, 2, 4, 8});
    d.pipeline_parallel_size = pick({1, 1, 2, 4});
    d.data_parallel_size = pick({1, 2, 4});
    d.world_size = d.tensor_parallel_size * d.expert_parallel_size * d.pipeline_parallel_size *
                   d.data_parallel_size;
    if (d.world_size <= most_ranks) break;
  }
  d.sequence_parallel = d.tensor_parallel_size > 1 && chance(0.5);
  const int64_t p = d.pipeline_parallel_size;
  m.num_layers = p * moe.moe_every_k_layers * pick({1, 2});
  int64_t micro_batches = pick({1, 2, 3, 6});
  if (p > 1) {
    d.pipeline_schedule = std::vector<std::string>{"gpipe", "1f1b", "zb_h1"}[random() % 3];
    if (chance(0.25)) {
      d.pipeline_schedule = "interleaved_1f1b";
      d.virtual_pipeline_size = 2;
      m.num_layers = 2 * p * moe.moe_every_k_layers;
      micro_batches = p * pick({1, 2});
    }
  }
  d.zero_stage = pick({0, 0, 1, 3});
  d.comm_optimization.gradient_reduction_overlap = chance(0.7);
  d.comm_optimization.all_to_all_overlap = chance(0.3);
  t.steps = 2;
  t.micro_batch_size = pick({1, 2});
  t.global_batch_size =
      t.micro_batch_size * micro_batches * d.data_parallel_size * d.expert_parallel_size;
  t.numerics = "none";
  t.dtype = "bf16";
  t.recompute = std::vector<std::string>{"none", "none", "selective", "full"}[random() % 4];
  s.data.format = "synthetic";
  s.routing.without_numerics = source;
  s.memory.on_exceed = "report";
  s.cluster.profile = "dgx-a100-80g";
  return s;
}

std::string describe(const Scenario& s) {
  const DistributedConfig& d = s.distributed_config;
  const ModelConfig& m = s.model_config;
  const MoeLayerConfig& e = m.moe_layer_config;
  const TrainingConfig& t = s.training_config;
  return fmt::format(
      "{}: {} ranks tp {}{} ep {} pp {} ({} x {}) dp {} zero {}{}{}, {} layers (MoE every {}) of "
      "{}, "
      "{} experts of {} top-{}{}, batch {} of {} x {}, recompute {}, routing {}",
      s.name, d.world_size, d.tensor_parallel_size, d.sequence_parallel ? " sp" : "",
      d.expert_parallel_size, d.pipeline_parallel_size, d.pipeline_schedule,
      d.virtual_pipeline_size, d.data_parallel_size, d.zero_stage,
      d.comm_optimization.gradient_reduction_overlap ? " overlap" : "",
      d.comm_optimization.all_to_all_overlap ? " chunks" : "", m.num_layers, e.moe_every_k_layers,
      m.hidden_size, e.num_experts, e.expert_hidden_size, e.top_k,
      e.capacity_factor ? " capacity" : "", t.global_batch_size, t.micro_batch_size,
      m.sequence_length, t.recompute, s.routing.without_numerics);
}

Simulated simulate(const Scenario& scenario) {
  TrainRunOptions options;
  options.tensors = options.check_access = options.poison = false;
  options.look_at_row = [](const StepRow& row) {
    return std::vector<double>{row.seconds(), static_cast<double>(row.peak_memory_bytes)};
  };
  const TrainResult result = train_in_child(scenario, options);
  const size_t n = result.rows.size();
  return {result.rows.at(n - 2), static_cast<int64_t>(result.rows.at(n - 1))};
}

}  // namespace moetwin::test
