#include "core/scenario/model_size.h"

#include <algorithm>

#include "core/scenario/sharding.h"
#include "core/scenario/stages.h"

namespace moetwin {
namespace {

// A two-matrix (or gated three-matrix) FFN; `with_second_bias` as the second bias may lie
// elsewhere.
int64_t ffn_parameters(int64_t hidden, int64_t width, bool gated, bool bias,
                       bool with_second_bias) {
  const int64_t matrices = gated ? 3 : 2;
  int64_t n = matrices * hidden * width;
  if (bias) n += (matrices - 1) * width + (with_second_bias ? hidden : 0);
  return n;
}

// What of an attention layer is whole on every rank of a TP group and summed over it: latents'
// projections and norms, or QK norms.
int64_t attention_on_parts(const ModelConfig& m) {
  const LatentAttentionConfig& l = m.latent_attention;
  if (m.latent())
    return m.hidden_size * (l.q_lora_rank + l.kv_lora_rank + l.qk_rope_head_dim) + l.q_lora_rank +
           l.kv_lora_rank;
  if (!m.qk_norm) return 0;
  const bool all = m.qk_norm_over == "projection";
  return m.dim_per_head() * (all ? m.num_attention_heads + m.kv_heads() : 2);
}

// Elements of the matrices that make `heads` heads (and `kv` of keys) and read their values.
int64_t attention_matrices(const ModelConfig& m, int64_t heads, int64_t kv) {
  const LatentAttentionConfig& l = m.latent_attention;
  const int64_t out = heads * m.value_dim() * m.hidden_size;
  if (!m.latent()) return out + m.hidden_size * (heads + 2 * kv) * m.dim_per_head();
  const int64_t from = l.q_lora_rank ? l.q_lora_rank : m.hidden_size;
  return out +
         heads * (from * m.dim_per_head() + l.kv_lora_rank * (l.qk_nope_head_dim + l.v_head_dim));
}

ParameterCount count(const Scenario& s, const ParallelSizes& sizes,
                     const std::vector<LayerRange>& ranges, bool has_embedding, bool has_head,
                     int64_t local_experts, int64_t hidden_row) {
  const ModelConfig& m = s.model_config;
  const MoeLayerConfig& moe = m.moe_layer_config;
  const int64_t h = m.hidden_size, tp = sizes.tp;
  const int64_t heads = m.num_attention_heads / tp, kv = m.kv_heads() / tp;
  const int64_t norm = m.normalization == "rmsnorm" ? h : 2 * h;
  const int64_t table = (m.vocab_size + tp - 1) / tp * h;
  ParameterCount n;
  std::vector<int64_t> layers;
  for (const LayerRange& range : ranges)
    for (int64_t i = range.first; i < range.end(); ++i) layers.push_back(i);
  for (const int64_t i : layers) {
    n.attention += attention_matrices(m, heads, kv) + attention_on_parts(m);
    if (m.attention_bias) n.attention += (heads + 2 * kv) * m.dim_per_head() + h;
    n.norm += 2 * norm;
    const bool is_moe = m.is_moe_layer(i);
    if (!is_moe || moe.dense_ffn_beside_moe)
      n.dense_ffn +=
          ffn_parameters(h, m.ffn_width() / tp, m.activation == "swiglu", m.ffn_bias, true);
    if (!is_moe) continue;
    if (s.routing.source == "learned") n.router += h * moe.num_experts;
    if (moe.shared_expert_hidden_size)
      n.shared_expert += ffn_parameters(h, moe.shared_expert_hidden_size / tp,
                                        moe.expert_activation == "swiglu", moe.expert_bias, true);
    n.expert += local_experts *
                ffn_parameters(h, m.expert_width() / (sizes.hidden_sharding * sizes.etp),
                               moe.expert_activation == "swiglu", moe.expert_bias, hidden_row == 0);
  }
  if (has_embedding) {
    n.embedding += table;
    if (m.position_embedding == "learned") n.embedding += m.sequence_length * h;
  }
  if (has_head) {
    n.norm += norm;
    // The tied table needs no second copy where both ends are on one stage.
    if (!m.tie_embeddings || !has_embedding) n.head += table;
  }
  return n;
}

StateBytes state_bytes(const Scenario& s, const BytesPerParameter& each, int64_t parameters,
                       int64_t shards) {
  const Shard shard = sharding_of(s.distributed_config).shard;
  const int64_t share = (parameters + shards - 1) / shards;
  const bool all = shard == Shard::everything && shards > 1;
  StateBytes bytes;
  bytes.gradients = each.gradient * (all ? share : parameters);
  if (all && s.distributed_config.fsdp.cpu_offload) return bytes;
  // Gathered 16-bit weights are made from the share of the master copy.
  bytes.weights =
      all ? (each.weight < each.gradient ? 0 : each.weight * share) : each.weight * parameters;
  bytes.optimizer = each.optimizer * (shard == Shard::nothing ? parameters : share);
  return bytes;
}

}  // namespace

ParameterCount model_parameters(const Scenario& s) {
  return count(s, ParallelSizes{}, {{0, s.model_config.num_layers}}, true, true,
               s.model_config.moe_layer_config.num_experts, 0);
}

ParameterCount active_parameters(const Scenario& s) {
  return count(s, ParallelSizes{}, {{0, s.model_config.num_layers}}, true, true,
               s.model_config.moe_layer_config.top_k, 0);
}

ParameterCount rank_parameters(const Scenario& s, const ParallelSizes& sizes, int64_t stage,
                               int64_t hidden_row) {
  DistributedConfig config = s.distributed_config;
  config.pipeline_parallel_size = sizes.pp;
  return count(s, sizes, rank_layers(s.model_config, config, stage), stage == 0,
               stage == sizes.pp - 1, sizes.local_experts, hidden_row);
}

BytesPerParameter bytes_per_parameter(const TrainingConfig& training) {
  const bool adamw = training.optimizer == "adamw";
  if (training.dtype == "fp64") return {8, 8, adamw ? 16 : 0};
  if (training.dtype == "fp32") return {4, 4, adamw ? 8 : 0};
  return {2, 4, adamw ? 12 : 4};
}

StateBytes& StateBytes::operator+=(const StateBytes& other) {
  weights += other.weights, gradients += other.gradients, optimizer += other.optimizer;
  return *this;
}

int64_t dense_shards(const Scenario& scenario, const ParallelSizes& sizes, int64_t gpus_per_node) {
  if (!sharding_of(scenario.distributed_config).inside_node) return sizes.ddp;
  return std::clamp<int64_t>(gpus_per_node / sizes.tp, 1, sizes.ddp);
}

int64_t expert_shards(const Scenario& scenario, const ParallelSizes& sizes, int64_t gpus_per_node) {
  if (!sharding_of(scenario.distributed_config).inside_node) return sizes.edp;
  return std::clamp<int64_t>(gpus_per_node / (sizes.ep * sizes.etp), 1, sizes.edp);
}

namespace {
// Shards of what is summed over TP too: routers, QK norms, latents and, with sequence parallelism,
// norms.
int64_t stage_shards(const Scenario& scenario, const ParallelSizes& sizes, int64_t gpus_per_node) {
  const int64_t ranks = sizes.ddp * sizes.tp;
  if (!sharding_of(scenario.distributed_config).inside_node) return ranks;
  return std::clamp<int64_t>(gpus_per_node, 1, ranks);
}
}  // namespace

StateBytes dense_state_bytes(const Scenario& scenario, const ParallelSizes& sizes,
                             const ParameterCount& on_rank, int64_t gpus_per_node) {
  TrainingConfig router = scenario.training_config;
  if (router.dtype != "fp64") router.dtype = "fp32";
  const ModelConfig& model = scenario.model_config;
  const int64_t shards = dense_shards(scenario, sizes, gpus_per_node);
  const int64_t stage = stage_shards(scenario, sizes, gpus_per_node);
  const BytesPerParameter each = bytes_per_parameter(scenario.training_config);
  int64_t slices = model.num_layers / sizes.pp * attention_on_parts(model);
  if (scenario.distributed_config.sequence_parallel) slices += on_rank.norm;
  StateBytes bytes = state_bytes(scenario, each, on_rank.dense() - on_rank.router - slices, shards);
  bytes += state_bytes(scenario, each, slices, stage);
  bytes += state_bytes(scenario, bytes_per_parameter(router), on_rank.router, stage);
  return bytes;
}

StateBytes expert_state_bytes(const Scenario& scenario, const ParallelSizes& sizes,
                              const ParameterCount& on_rank, int64_t gpus_per_node) {
  return state_bytes(scenario, bytes_per_parameter(scenario.training_config), on_rank.expert,
                     expert_shards(scenario, sizes, gpus_per_node));
}

ForwardFlop forward_flop_per_token(const Scenario& s) {
  const ModelConfig& m = s.model_config;
  const MoeLayerConfig& moe = m.moe_layer_config;
  const double h = static_cast<double>(m.hidden_size), layers = static_cast<double>(m.num_layers);
  const double moe_layers = static_cast<double>(m.num_moe_layers());
  const LatentAttentionConfig& latent = m.latent_attention;
  const int64_t down =
      m.latent()
          ? m.hidden_size * (latent.q_lora_rank + latent.kv_lora_rank + latent.qk_rope_head_dim)
          : 0;
  const auto ffn = [h](const std::string& activation, int64_t width) {
    return (activation == "swiglu" ? 6 : 4) * h * static_cast<double>(width);
  };
  ForwardFlop f;
  f.projections =
      layers * 2 *
      static_cast<double>(down + attention_matrices(m, m.num_attention_heads, m.kv_heads()));
  f.scores = layers * 2 * static_cast<double>(m.sequence_length) *
             static_cast<double>(m.num_attention_heads * (m.dim_per_head() + m.value_dim()));
  if (s.routing.source == "learned")
    f.router = moe_layers * 2 * h * static_cast<double>(moe.num_experts);
  f.experts =
      moe_layers * static_cast<double>(moe.top_k) * ffn(moe.expert_activation, m.expert_width());
  f.shared_expert = moe_layers * ffn(moe.expert_activation, moe.shared_expert_hidden_size);
  const double dense_layers = moe.dense_ffn_beside_moe ? layers : layers - moe_layers;
  f.dense_ffn = dense_layers * ffn(m.activation, m.ffn_width());
  f.head = 2 * h * static_cast<double>(m.vocab_size);
  return f;
}

bool recompute_ends_early(const Scenario& scenario) {
  return scenario.cluster.kernels == "moetwin" ||
         (scenario.cluster.kernels == "torch-fsdp" && scenario.model_config.dropout == 0);
}

double recompute_flop_per_token(const Scenario& scenario) {
  const TrainingConfig& t = scenario.training_config;
  const ForwardFlop f = forward_flop_per_token(scenario);
  if (t.recompute == "full") {
    const ModelConfig& m = scenario.model_config;
    const double last = recompute_ends_early(scenario)
                            ? 2 * static_cast<double>((m.num_layers - m.num_moe_layers()) *
                                                      m.hidden_size * m.ffn_width())
                            : 0;
    return f.total() - f.router - f.head - last;
  }
  const auto& modules = t.recompute_modules;
  const bool core = t.recompute == "selective" &&
                    std::find(modules.begin(), modules.end(), "attention_core") != modules.end();
  return core ? f.scores : 0;
}

double training_flop_per_token(const Scenario& scenario) {
  return 3 * forward_flop_per_token(scenario).total();
}

double training_flop_per_step(const Scenario& scenario) {
  return training_flop_per_token(scenario) *
         static_cast<double>(scenario.training_config.global_batch_size) *
         static_cast<double>(scenario.model_config.sequence_length);
}

}  // namespace moetwin
