#pragma once
// What a model needs, by arithmetic alone: parameters, bytes of training state a rank, FLOP a
// token. `check`, the report and the tests use these formulas; semantics 7 defines the terms.

#include <cstdint>

#include "core/scenario/scenario.h"
#include "core/scenario/sizes.h"

namespace moetwin {

/// Parameters by what they belong to.
struct ParameterCount {
  int64_t embedding = 0;  ///< V x H, and S x H learned positions
  int64_t head = 0;       ///< V x H of the LM head where it is not the embedding's table
  int64_t attention =
      0;  ///< projections of any kind, their biases, norms of queries, keys, latents
  int64_t norm = 0;
  int64_t dense_ffn = 0;
  int64_t router = 0;  ///< H x E a layer; scripted routers have none
  int64_t shared_expert = 0;
  int64_t expert = 0;

  int64_t total() const { return dense() + expert; }
  /// What is replicated over the dense grid: all but the routed experts.
  int64_t dense() const {
    return embedding + head + attention + norm + dense_ffn + router + shared_expert;
  }
};

/// The whole model.
ParameterCount model_parameters(const Scenario& scenario);
/// The part that one token uses: all, but k of the E experts of each MoE layer.
ParameterCount active_parameters(const Scenario& scenario);
/// What one rank holds: layers of its stage, 1/TP of the dense matrices, E/esd experts of which
/// 1/(hsd x ETP) of the width; the second bias of an expert is on `hidden_row` 0 of these only.
/// Tied embeddings stand on the first and the last stage.
ParameterCount rank_parameters(const Scenario& scenario, const ParallelSizes& sizes, int64_t stage,
                               int64_t hidden_row);

/// Bytes for each parameter: AdamW keeps two moments of 4 bytes (8 with fp64), SGD nothing;
/// gradients have 4 bytes (8 with fp64); with 16-bit weights the optimizer keeps a fp32 master
/// copy.
struct BytesPerParameter {
  int64_t weight = 4, gradient = 4, optimizer = 8;
};
BytesPerParameter bytes_per_parameter(const TrainingConfig& training);

/// Bytes of training state on one rank; activations, buffers and the padding of flat buffers (below
/// 128 bytes a parameter tensor) come on top.
struct StateBytes {
  int64_t weights = 0, gradients = 0, optimizer = 0;
  int64_t total() const { return weights + gradients + optimizer; }
  StateBytes& operator+=(const StateBytes& other);
};
/// Over how many ranks a sharding strategy spreads dense parameters and experts. `gpus_per_node`
/// matters for hybrid sharding only.
int64_t dense_shards(const Scenario& scenario, const ParallelSizes& sizes, int64_t gpus_per_node);
int64_t expert_shards(const Scenario& scenario, const ParallelSizes& sizes, int64_t gpus_per_node);
/// Of the dense parameters and of the routed experts, on the GPU and between uses: with sharding
/// ceil(n / shards) of what the strategy shards; nothing of what is offloaded.
StateBytes dense_state_bytes(const Scenario& scenario, const ParallelSizes& sizes,
                             const ParameterCount& on_rank, int64_t gpus_per_node = 8);
StateBytes expert_state_bytes(const Scenario& scenario, const ParallelSizes& sizes,
                              const ParameterCount& on_rank, int64_t gpus_per_node = 8);

/// Model FLOP of the forward of one token (semantics 7): matrix multiplications only, a
/// multiply-add is 2, scores and values over the full sequence. All layers together.
struct ForwardFlop {
  double projections = 0;  ///< qkv and output, or those of latent attention
  double scores = 0;       ///< q k^T and p v over the full sequence: 2 x S x heads x (D + Dv)
  double router = 0;       ///< 2 x H x E
  double experts = 0;      ///< k x 4HF (6HF gated)
  double shared_expert = 0;
  double dense_ffn = 0;
  double head = 0;  ///< 2 x H x V
  double total() const {
    return projections + scores + router + experts + shared_expert + dense_ffn + head;
  }
};
ForwardFlop forward_flop_per_token(const Scenario& scenario);
/// Whether a dense layer's second forward ends where the backward needs no more of it, before its
/// last product: PyTorch's checkpoint (torch.utils.checkpoint, set_checkpoint_early_stop) where no
/// dropout keeps a mask of what follows, and moetwin's. Megatron's runs all of the layer again.
bool recompute_ends_early(const Scenario& scenario);
/// Of it, what training_config.recompute does twice: full: all but router and head, and the last
/// product where recompute_ends_early; selective: scores and values with attention_core, no product
/// with expert_activation.
double recompute_flop_per_token(const Scenario& scenario);
/// Forward and backward: the backward is twice the forward.
double training_flop_per_token(const Scenario& scenario);
/// Of one step: x global_batch_size x sequence_length.
double training_flop_per_step(const Scenario& scenario);

}  // namespace moetwin
