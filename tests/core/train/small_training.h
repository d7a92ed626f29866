#pragma once
// A model of a few thousand parameters on synthetic data, to be trained for a few steps.

#include "core/scenario/scenario.h"

namespace moetwin::test {

/// Two MoE layers, fp64, plain SGD without clipping; every rank has one sequence in a step.
inline Scenario small_training(int64_t dp, int64_t ep, int64_t experts, int64_t top_k,
                               int64_t steps) {
  Scenario s;
  s.name = "small";
  ModelConfig& m = s.model_config;
  m.hidden_size = 8;
  m.num_layers = 2;
  m.num_attention_heads = 2;
  m.ffn_hidden_size = 12;
  m.vocab_size = 17;
  m.sequence_length = 6;
  m.init_std = 0.3;  // large enough that scores differ and gradients of all parts are felt
  m.moe_layer_config.num_experts = experts;
  m.moe_layer_config.top_k = top_k;
  m.moe_layer_config.expert_hidden_size = 16;
  m.moe_layer_config.aux_loss_factor = 0.05;
  DistributedConfig& d = s.distributed_config;
  d.world_size = dp * ep;
  d.data_parallel_size = dp;
  d.expert_parallel_size = ep;
  d.comm_optimization.gradient_bucket_bytes = 4096;
  TrainingConfig& t = s.training_config;
  t.steps = steps;
  t.global_batch_size = dp * ep;
  t.dtype = "fp64";
  t.optimizer = "sgd";
  t.learning_rate = 0.5;
  t.weight_decay = 0;
  t.max_grad_norm = 0;
  t.validation_sequences = 0;
  s.data.format = "synthetic";
  s.cluster.profile = "toy-8gpu";
  return s;
}

}  // namespace moetwin::test
