#pragma once
// What a scenario file says, as plain values. Defaults here are the defaults of the file; reading,
// ranges and cross-key rules live in the key table (core/scenario/keys.h), from which the JSON
// Schema is generated too. Member names equal the JSON keys.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace moetwin {

/// `moe_layer_config`: the MoE layers (seed 001), their losses and capacity (semantics 4).
struct MoeLayerConfig {
  int64_t num_experts = 0;                     ///< E; 0: a dense model without MoE layers
  int64_t top_k = 2;                           ///< k experts per token
  int64_t moe_every_k_layers = 1;              ///< layer i is MoE where i % n == n - 1
  int64_t first_dense_layers = 0;              ///< the first layers are dense whatever i is
  double aux_loss_factor = 0.01;               ///< factor of E * sum f_i P_i, mean over MoE layers
  std::string aux_loss_scope = "micro_batch";  ///< micro_batch | sequence | global_batch
  double z_loss_factor = 0;           ///< factor of mean logsumexp(logits)^2, mean over MoE layers
  double importance_loss_factor = 0;  ///< factor of CV^2 of the summed scores, mean over MoE layers
  double load_variance_factor =
      0;  ///< factor of mean (n_i - mean n)^2 (seed 000); gradient exactly zero
  double bias_update_rate = 0;            ///< gamma of the aux-loss-free balance bias; 0: off
  int64_t bias_update_delay_steps = 0;    ///< the bias moves by the counts of that many steps ago
  double bias_count_ema = 0;              ///< weight of the past in the average of excess loads
  std::optional<double> capacity_factor;  ///< null: dropless
  int64_t min_capacity = 0;
  std::string drop_policy = "position";   ///< position | probability
  int64_t expert_hidden_size = 0;         ///< F of one expert; 0: 4 * hidden_size
  int64_t shared_expert_hidden_size = 0;  ///< 0: no shared expert
  bool shared_expert_weighted = false;    ///< weigh shared 1/(k+1) against routed k/(k+1)
  bool dense_ffn_beside_moe = false;  ///< seed 000's layer: the dense FFN runs beside the experts
  std::string expert_activation = "gelu";  ///< gelu | gelu_tanh | swiglu (shared expert too)
  bool expert_bias = true;                 ///< biases of the projections of all experts, shared too
  double expert_init_scale = 1;            ///< multiplies the standard deviation of expert weights
};

/// `model_config.latent_attention`: widths of multi-head latent attention (DeepSeek-V2, arXiv
/// 2405.04434), in the names of its config.json.
struct LatentAttentionConfig {
  int64_t q_lora_rank = 0;         ///< of the queries' latent; 0: queries straight from the input
  int64_t kv_lora_rank = 512;      ///< of the latent that keys and values share
  int64_t qk_nope_head_dim = 128;  ///< per head, without positions
  int64_t qk_rope_head_dim = 64;   ///< per head, rotated; one key of it for all heads
  int64_t v_head_dim = 128;
};

/// `model_config.yarn`: how rotary frequencies are stretched (Peng et al., arXiv 2309.00071).
struct YarnConfig {
  int64_t original_sequence_length = 4096;  ///< what the frequencies were trained for
  double beta_fast = 32;      ///< frequencies with more turns than this in it stay as they are
  double beta_slow = 1;       ///< those with fewer are divided by rotary_scaling_factor
  double mscale = 0;          ///< with the next one: cosines x m(mscale) / m(mscale_all_dim)
  double mscale_all_dim = 0;  ///< latent attention: scores x m(this)^2; m(x) = 0.1 x ln(factor) + 1
};

/// `model_config`: the transformer.
struct ModelConfig {
  std::string model_type = "transformer_moe";
  int64_t hidden_size = 256;
  int64_t num_layers = 4;
  int64_t num_attention_heads = 4;
  int64_t num_key_value_heads = 0;       ///< 0: as many as attention heads
  int64_t head_dim = 0;                  ///< 0: hidden_size / num_attention_heads
  std::string attention = "multi_head";  ///< multi_head | multi_head_latent
  LatentAttentionConfig latent_attention;
  int64_t ffn_hidden_size = 0;  ///< dense FFN width; 0: 4 * hidden_size
  int64_t vocab_size = 256;
  int64_t sequence_length = 128;            ///< tokens of one training sequence
  std::string normalization = "layernorm";  ///< layernorm | rmsnorm
  double norm_epsilon = 1e-5;
  std::string position_embedding = "learned";  ///< learned | rotary | none
  double rotary_base = 10000;
  double rotary_scaling_factor = 1;       ///< by how much longer sequences are than the base is for
  std::string rotary_scaling = "linear";  ///< linear (positions are divided by it) | yarn
  YarnConfig yarn;
  std::string activation = "gelu";    ///< gelu | gelu_tanh | swiglu (dense FFN)
  bool attention_bias = true;         ///< biases of the attention projections
  bool ffn_bias = true;               ///< biases of the dense FFN
  bool qk_norm = false;               ///< RMS norm of queries and keys
  std::string qk_norm_over = "head";  ///< head | projection (all heads together, as in OLMoE)
  bool tie_embeddings = true;         ///< LM head shares the token embedding
  double embedding_offset = 0;        ///< added to every element of the embedding's output
  double dropout = 0;  ///< after embedding, attention and FFN/MoE, seeded per element
  double init_std = 0.02;
  MoeLayerConfig moe_layer_config;

  int64_t kv_heads() const {
    return num_key_value_heads ? num_key_value_heads : num_attention_heads;
  }
  bool latent() const { return attention == "multi_head_latent"; }
  /// Of queries and keys.
  int64_t dim_per_head() const {
    if (latent()) return latent_attention.qk_nope_head_dim + latent_attention.qk_rope_head_dim;
    return head_dim ? head_dim : hidden_size / num_attention_heads;
  }
  int64_t value_dim() const { return latent() ? latent_attention.v_head_dim : dim_per_head(); }
  int64_t ffn_width() const { return ffn_hidden_size ? ffn_hidden_size : 4 * hidden_size; }
  int64_t expert_width() const {
    return moe_layer_config.expert_hidden_size ? moe_layer_config.expert_hidden_size
                                               : 4 * hidden_size;
  }
  bool is_moe_layer(int64_t layer) const {
    const int64_t n = moe_layer_config.moe_every_k_layers;
    return moe_layer_config.num_experts > 0 && layer >= moe_layer_config.first_dense_layers &&
           layer % n == n - 1;
  }
  int64_t num_moe_layers() const {
    return moe_layer_config.num_experts > 0 ? moe_layers_before(num_layers) : 0;
  }
  /// MoE layers among the first `layer` layers; that is also an MoE layer's place among them.
  int64_t moe_layers_before(int64_t layer) const {
    const MoeLayerConfig& moe = moe_layer_config;
    const int64_t n = moe.moe_every_k_layers;
    return layer > moe.first_dense_layers ? layer / n - moe.first_dense_layers / n : 0;
  }
};

/// `distributed_config.comm_optimization`.
struct CommOptimization {
  bool all_to_all_overlap =
      false;  ///< split tokens into chunks; dispatch of one beside experts of another
  int64_t all_to_all_chunks = 2;     ///< chunks when overlap is on
  bool micro_batch_overlap = false;  ///< exchange of one micro-batch beside compute of another
  bool gradient_reduction_overlap = true;  ///< reduce buckets while backward goes on
  int64_t gradient_bucket_bytes = 25 << 20;
};

/// `distributed_config.fsdp.mixed_precision`: types of what is computed with and reduced in.
struct MixedPrecision {
  std::string param_dtype = "auto";   ///< of gathered parameters; auto: training_config.dtype
  std::string reduce_dtype = "auto";  ///< of gradients in their sum; auto: fp32 (fp64 with fp64)
  std::string buffer_dtype = "auto";  ///< of the balance bias: fp32 always, so auto or fp32
};

/// `distributed_config.fsdp`: fully sharded data parallel, in PyTorch's names (seed 000).
struct FsdpConfig {
  /// A name of core/scenario/sharding.h (FULL_SHARD, ...); auto: what zero_stage says.
  std::string sharding_strategy = "auto";
  std::string backward_prefetch = "BACKWARD_PRE";  ///< BACKWARD_PRE | BACKWARD_POST | none
  bool forward_prefetch = true;   ///< gather the next unit before the forward of this one
  int64_t limit_all_gathers = 2;  ///< units gathered, or still in memory, at once
  bool cpu_offload = false;       ///< parameters and optimizer state in host memory
  MixedPrecision mixed_precision;
};

/// `distributed_config` (seed 001): how WORLD_SIZE is factored (semantics 1).
struct DistributedConfig {
  int64_t world_size = 1;
  int64_t data_parallel_size = 1;  ///< EDP: copies of each expert
  int64_t expert_parallel_size = 1;
  int64_t tensor_parallel_size = 1;
  bool sequence_parallel = false;  ///< norms, dropout and residuals on slices of tokens over TP
  int64_t pipeline_parallel_size = 1;
  int64_t context_parallel_size = 1;              ///< CP: ranks with parts of the same sequences
  std::string context_parallel_exchange = "p2p";  ///< p2p | all_gather | a2a
  int64_t expert_tensor_parallel_size = 0;        ///< 0: equal to tensor_parallel_size
  bool parallel_folding = false;
  int64_t dense_data_parallel_size = 0;    ///< only with parallel_folding; 0: from the other sizes
  std::string pipeline_schedule = "1f1b";  ///< gpipe | 1f1b | interleaved_1f1b | zb_h1
  /// Chunks of layers a rank holds (interleaved_1f1b): stage g of PP * this many runs on rank g %
  /// PP.
  int64_t virtual_pipeline_size = 1;
  /// Layers of each (virtual) stage in the order data flows; empty: equally many, but for the two
  /// below.
  std::vector<int64_t> layers_per_stage;
  int64_t num_layers_in_first_pipeline_stage = 0;  ///< 0: as many as the others
  int64_t num_layers_in_last_pipeline_stage = 0;   ///< 0: as many as the others
  int64_t zero_stage = 0;  ///< 0 to 3: ZeRO's words for fsdp.sharding_strategy
  FsdpConfig fsdp;
  CommOptimization comm_optimization;
  std::string distributed_backend = "nccl";  ///< collective library used or modelled
  std::string master_addr = "env://";
  std::string master_port = "env://";
  double timeout_seconds = 30;     ///< a collective that has not arrived by then ends the job
  bool check_collectives = false;  ///< compare every collective over the ranks before it starts
  int64_t check_replicas_every_steps = 0;  ///< compare copies of weights and state; 0: never
};

/// A schedule of one number over steps (1-based step numbers).
struct Schedule {
  std::string kind = "constant";  ///< constant | warmup | cosine | hold
  int64_t warmup_steps = 0;       ///< linear from 0, for every kind
  int64_t decay_steps = 0;        ///< cosine: length until min_ratio; 0: the training's steps
  double min_ratio = 0.1;         ///< cosine: final value / peak value
  int64_t hold_steps = 0;         ///< hold: `hold_ratio` through this step, then 1
  double hold_ratio = 0;
};

/// Multipliers and schedule of one parameter kind.
struct ParameterKindConfig {
  double learning_rate_multiplier = 1;
  double weight_decay_multiplier = 1;
  std::optional<Schedule> schedule;  ///< null: that of training_config
};

/// `training_config.loss_scaling`: keeps small gradients of fp16 training above zero (seed 000).
struct LossScalingConfig {
  std::string mode = "auto";     ///< auto: dynamic for fp16, else none | dynamic | static | none
  double initial_scale = 65536;  ///< static: the scale
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval_steps = 2000;  ///< steps without overflow before the scale grows
  int64_t hysteresis = 1;                ///< overflows that a scale survives, the last not
  double minimum_scale = 1;
};

/// `training_config`.
struct TrainingConfig {
  int64_t steps = 100;
  int64_t global_batch_size = 8;  ///< sequences per step over all ranks
  int64_t micro_batch_size = 1;   ///< sequences per rank and forward
  int64_t seed = 1;
  std::string numerics = "full";    ///< full | none
  std::string dtype = "fp32";       ///< fp32 | bf16 | fp16 | fp64 (fp64: modelled GPU only)
  std::string optimizer = "adamw";  ///< adamw | sgd
  double learning_rate = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double adam_epsilon = 1e-8;
  double weight_decay = 0.01;
  bool decay_one_dimensional = false;  ///< decay biases and norms too
  double max_grad_norm = 1.0;          ///< global clip; 0: off
  LossScalingConfig loss_scaling;
  std::string recompute = "none";  ///< none | selective | full: activations made again
  /// With recompute selective: what is not kept.
  std::vector<std::string> recompute_modules{"attention_core", "expert_activation"};
  Schedule schedule;
  ParameterKindConfig router, expert, dense, embedding;
  int64_t validation_every = 0;  ///< 0: only at the end where there is validation data
  int64_t validation_sequences = 32;
  int64_t warmup_steps_excluded = 2;  ///< steps left out of throughput
};

/// `data`.
struct DataConfig {
  std::string format =
      "text";  ///< text | tokens (nanoGPT/llm.c .bin) | megatron (.bin/.idx) | synthetic
  std::vector<std::string> files;      ///< paths or globs; relative to the scenario's directory
  std::string token_dtype = "uint16";  ///< tokens without header: uint16 | uint32
  double validation_fraction = 0.1;
  std::vector<std::string> validation_files;
};

/// Noise on the router's logits while training.
struct NoiseConfig {
  std::string kind = "none";  ///< none | gaussian | gumbel
  double scale = 0;
};

/// Parameters of the scripted workloads W0 to W11.
struct WorkloadConfig {
  double hot_fraction = 0.5;  ///< share of assignments on the hot set (W1, W2, W3, W6, W7, W11)
  int64_t hot_experts = 1;    ///< size of the hot set (W1, W3, W6, W7)
  int64_t hot_rank = 0;       ///< EP rank (W2, W11)
  double ragged_ratio = 4;    ///< W4: largest / smallest source rank
  int64_t zero_experts = 1;   ///< W5
  int64_t period_steps = 20;  ///< W6, W7, W9
  int64_t burst_steps = 2;    ///< W7
  double max_violation = 1;   ///< W8: target MaxVio
  double amplitude = 0.5;     ///< W9: in units of the mean load
};

/// The fixed batch that is routed again and again to see whether the router moves.
struct ProbeConfig {
  int64_t every_steps = 1;  ///< 0: off
  int64_t sequences = 0;    ///< 0: as many as make 512 tokens, at most the global batch
};

/// `routing`: which router, and how it scores and selects (semantics 3).
struct RoutingConfig {
  std::string source = "learned";            ///< learned | uniform | W0 .. W11 | trace | proxy
  std::string without_numerics = "uniform";  ///< substitute for `learned` with numerics none
  std::string score_function = "softmax";    ///< softmax | sigmoid
  double jitter_epsilon = 0;
  NoiseConfig noise;
  double normalize_weights = 0;  ///< p of the p-norm that divides the k weights; 0: raw scores
  double weight_scale = 1;
  int64_t groups = 1;  ///< group-limited top-k
  int64_t kept_groups = 1;
  double init_scale = 1;           ///< multiplies the standard deviation of router weights
  int64_t weight_delay_steps = 0;  ///< training: route by weights of that many steps ago
  std::string trace_file;          ///< routing.csv or Megatron JSONL, for `trace` and W10
  std::string scenario;            ///< for `proxy`: a smaller scenario, or the record of its run
  int64_t first_step = 1;          ///< of `trace_file` or the proxy's run: what step 1 replays
  WorkloadConfig workload;
  ProbeConfig probe;
};

/// `rebalancing`: which rank works on which expert's tokens, where that is not the expert's own
/// rank.
struct RebalancingConfig {
  std::string kind = "none";      ///< none | replication | shadowing | spill
  int64_t interval_steps = 10;    ///< replication: from one choice of replicas to the next
  int64_t redundant_experts = 0;  ///< replication: replicas beside the experts, of an EP group
  double network_bytes_per_second = 25e9;  ///< shadowing: what its decision reckons with
  double flop_per_second = 1.5e14;         ///< shadowing: the same
  double imbalance_threshold = 1.3;  ///< spill: below this max / mean over ranks nothing moves
  double tokens_factor = 1;          ///< spill: most tokens of a rank in units of the mean
  int64_t min_tokens = 1024;         ///< spill: fewer are not worth an expert's weights
};

/// `cluster`: the machine to model, and what may be changed of its profile.
struct ClusterConfig {
  std::string profile = "dgx-a100-80g";  ///< name in scenarios/clusters or a path
  int64_t nodes = 0;                     ///< 0: as many as world_size needs
  std::string fidelity = "fluid";        ///< representative | fluid | flow
  std::string kernels =
      "moetwin";  ///< kernel class: moetwin | megatron-2021 | megatron-core | torch-fsdp
  std::string attention =
      "auto";  ///< auto (the class's own) | unfused | fused-softmax | flash | flash2 | ...
  bool blocking_wait = false;     ///< the host waits for collectives that compute waits for
  double stage_pass_seconds = 0;  ///< host time of a pass where there are stages
  bool fp8_products = false;      ///< products of linear layers in FP8 (numerics none)
  std::string collective_algorithm = "auto";  ///< auto | ring | tree
  double price_per_gpu_hour = 0;
  std::string currency = "USD";
};

/// `memory`.
struct MemoryConfig {
  std::string on_exceed = "stop";  ///< stop | report (numerics none only)
  bool poison = false;             ///< fill every new buffer with NaN
};

/// `checkpoint`: what is saved of a training, and when.
struct CheckpointConfig {
  std::string directory;              ///< empty: checkpoints/ in the run directory
  int64_t every_steps = 0;            ///< 0: only when a signal or a verdict ends the run
  int64_t keep_last = 2;              ///< 0: all
  std::string type = "sharded";       ///< full (FULL_STATE_DICT: one file) | sharded (one per rank)
  bool async = false;                 ///< write beside training
  double write_bytes_per_second = 0;  ///< of one rank, on the modelled cluster; 0: takes no time
};

/// `output`.
struct OutputConfig {
  std::string directory;  ///< empty: runs/<name>-<backend>-<time>
  std::vector<int64_t>
      routing_ranks;  ///< ranks with per-rank rows; empty: volume rule of semantics 9
  std::vector<int64_t> timeline_steps;  ///< empty: the last step
  bool check_access = false;            ///< run the access check of core/device
  int64_t log_every = 1;
};

/// `profile`: which steps the op table and the timeline are made of, as torch.profiler.schedule
/// counts them: `wait` steps pass, `warmup` steps are traced and thrown away (tracing itself costs
/// a little in its first steps), `active` steps are kept.
struct ProfileConfig {
  int64_t wait = 1;
  int64_t warmup = 1;
  int64_t active = 0;  ///< 0: no profile
  int64_t repeat = 1;  ///< cycles of wait + warmup + active; 0: to the end of the run
};

/// A whole scenario file.
struct Scenario {
  std::string name;  ///< file stem
  std::string path;  ///< where it was read from; empty when built in code
  std::string description;
  ModelConfig model_config;
  DistributedConfig distributed_config;
  /// Environment variables of NCCL, set for the run; the modelled cluster obeys NCCL_ALGO.
  std::map<std::string, std::string> nccl;
  TrainingConfig training_config;
  DataConfig data;
  RoutingConfig routing;
  RebalancingConfig rebalancing;
  ClusterConfig cluster;
  MemoryConfig memory;
  CheckpointConfig checkpoint;
  OutputConfig output;
  ProfileConfig profile;
};

}  // namespace moetwin
