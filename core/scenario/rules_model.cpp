// Rules of the dense part of the model and of how it is split.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/units.h"
#include "core/scenario/rule_list.h"
#include "core/scenario/sizes.h"

namespace moetwin {
namespace {

// Weights of the whole model as a double: an estimate that cannot overflow.
double estimated_parameters(const ModelConfig& m) {
  const double h = m.hidden_size, layers = m.num_layers, moe_layers = m.num_moe_layers();
  const MoeLayerConfig& moe = m.moe_layer_config;
  const LatentAttentionConfig& latent = m.latent_attention;
  const double narrow = double(m.latent() ? latent.q_lora_rank + latent.kv_lora_rank : 0);
  const double attention = 2 * std::max(h, narrow) *
                           double(std::max(m.dim_per_head(), m.value_dim())) *
                           (double(m.num_attention_heads) + double(m.kv_heads()));
  const double dense = (m.activation == "swiglu" ? 3 : 2) * h * double(m.ffn_width());
  const double expert = (moe.expert_activation == "swiglu" ? 3 : 2) * h * double(m.expert_width());
  return double(m.vocab_size) * h + layers * attention + (layers - moe_layers) * dense +
         moe_layers * double(moe.num_experts) * expert;
}

std::string heads_fault(const Scenario& s, const Problems&) {
  const ModelConfig& m = s.model_config;
  if (m.latent() || m.head_dim != 0 || m.hidden_size % m.num_attention_heads == 0) return "";
  return fmt::format(
      "num_attention_heads {} does not divide hidden_size {} (rest {}); legal "
      "num_attention_heads: {}; or give head_dim",
      m.num_attention_heads, m.hidden_size, m.hidden_size % m.num_attention_heads,
      divisors_text(m.hidden_size));
}

std::string kv_heads_fault(const Scenario& s, const Problems&) {
  const ModelConfig& m = s.model_config;
  if (m.num_attention_heads % m.kv_heads() == 0) return "";
  return fmt::format(
      "num_key_value_heads {} does not divide num_attention_heads {}; legal num_key_value_heads: "
      "{}",
      m.kv_heads(), m.num_attention_heads, divisors_text(m.num_attention_heads));
}

std::string rotary_fault(const Scenario& s, const Problems&) {
  const ModelConfig& m = s.model_config;
  if (m.latent() || m.position_embedding != "rotary" || m.dim_per_head() % 2 == 0) return "";
  return fmt::format(
      "rotary positions turn pairs, but the head width is {} ({}); legal: an even head width, or "
      "position_embedding learned, none",
      m.dim_per_head(),
      m.head_dim ? std::string("head_dim")
                 : fmt::format("hidden_size {} / num_attention_heads {}", m.hidden_size,
                               m.num_attention_heads));
}

std::string tensor_fault(const Scenario& s, const Problems&) {
  const ModelConfig& m = s.model_config;
  const DistributedConfig& d = s.distributed_config;
  const int64_t tp = d.tensor_parallel_size;
  const auto fault = [&](const char* what, int64_t size, int64_t by) {
    return fmt::format("{} {} does not divide over tensor_parallel_size {} (rest {}); legal: {}",
                       what, size, by, size % by, divisors_text(size));
  };
  if (m.num_attention_heads % tp) return fault("num_attention_heads", m.num_attention_heads, tp);
  if (m.kv_heads() % tp) return fault("num_key_value_heads", m.kv_heads(), tp);
  if (m.ffn_width() % tp) return fault("the dense FFN width", m.ffn_width(), tp);
  const int64_t shared = m.moe_layer_config.shared_expert_hidden_size;
  if (shared % tp) return fault("shared_expert_hidden_size", shared, tp);
  return "";
}

std::string idle_offset(const Scenario& s, const Problems&) {
  const ModelConfig& m = s.model_config;
  if (m.embedding_offset == 0 || m.normalization != "layernorm") return "";
  return fmt::format(
      "embedding_offset {} with normalization layernorm changes nothing: each norm subtracts the "
      "mean over features, and the offset with it; rmsnorm keeps it",
      m.embedding_offset);
}

// The TP ranks cut the tokens of a micro-batch, which is whole sequences, into equal slices.
std::string slices_fault(const Scenario& s, const Problems&) {
  const ModelConfig& m = s.model_config;
  const DistributedConfig& d = s.distributed_config;
  const int64_t tp = d.tensor_parallel_size, length = local_sequence_length(s);
  if (tp == 1 || (!d.sequence_parallel && m.num_moe_layers() == 0)) return "";
  const std::string of =
      d.context_parallel_size == 1
          ? ""
          : fmt::format(" / context_parallel_size {} = {}", d.context_parallel_size, length);
  const char* why = d.sequence_parallel ? "sequence_parallel" : "the token exchange of MoE layers";
  if (length % tp)
    return fmt::format(
        "{} gives every TP rank an equal slice of a sequence, but sequence_length {}{} does not "
        "divide "
        "over tensor_parallel_size {} (rest {}); legal tensor_parallel_size: {}",
        why, m.sequence_length, of, tp, length % tp, divisors_text(length));
  const CommOptimization& c = d.comm_optimization;
  const int64_t slice = length / tp;
  if (m.num_moe_layers() == 0 || !c.all_to_all_overlap || slice % c.all_to_all_chunks == 0)
    return "";
  return fmt::format(
      "all_to_all_overlap cuts the slice of a TP rank, sequence_length {}{} / tensor_parallel_size "
      "{} "
      "= {} tokens, into all_to_all_chunks {} (rest {}); legal all_to_all_chunks: {}",
      m.sequence_length, of, tp, slice, c.all_to_all_chunks, slice % c.all_to_all_chunks,
      divisors_text(slice));
}

std::string size_fault(const Scenario& s, const Problems&) {
  const double parameters = estimated_parameters(s.model_config);
  // More than any machine of today holds; below it 64-bit counts of bytes cannot overflow.
  constexpr double kMostBytes = 1.0 * (int64_t{1} << 52);
  if (4 * parameters <= kMostBytes) return "";
  return fmt::format(
      "the weights would take {} x 4 bytes = {} in all (num_layers {}, num_experts {}, expert "
      "width {}, hidden_size {}, vocab_size {}); legal: at most {}",
      format_count(parameters), format_bytes(4 * parameters), s.model_config.num_layers,
      s.model_config.moe_layer_config.num_experts, s.model_config.expert_width(),
      s.model_config.hidden_size, s.model_config.vocab_size, format_bytes(kMostBytes));
}

}  // namespace

void add_model_rules(std::vector<Rule>& rules) {
  const std::string heads = kModel + "num_attention_heads", hidden = kModel + "hidden_size";
  const std::string head_dim = kModel + "head_dim", kv = kModel + "num_key_value_heads";
  rules.push_back({{heads, hidden, head_dim},
                   "num_attention_heads divides hidden_size, unless head_dim is given",
                   false,
                   heads_fault});
  rules.push_back(
      {{kv, heads}, "num_key_value_heads divides num_attention_heads", false, kv_heads_fault});
  rules.push_back({{kModel + "position_embedding", head_dim, heads, hidden},
                   "rotary positions need an even head width",
                   false,
                   rotary_fault});
  rules.push_back({{kModel + "embedding_offset", kModel + "normalization"},
                   "an offset of the embedding needs a norm that keeps means",
                   true,
                   idle_offset});
  rules.push_back({{kDistributed + "tensor_parallel_size", heads, kv, kModel + "ffn_hidden_size",
                    kMoe + "shared_expert_hidden_size"},
                   "tensor_parallel_size divides the heads and the widths of dense FFN and shared "
                   "expert",
                   false,
                   tensor_fault});
  rules.push_back(
      {{kDistributed + "tensor_parallel_size", kModel + "sequence_length",
        kDistributed + "sequence_parallel", kDistributed + "comm_optimization.all_to_all_overlap",
        kDistributed + "comm_optimization.all_to_all_chunks", kMoe + "num_experts"},
       "TP ranks cut sequences into equal slices: with sequence_parallel, and in MoE layers (there "
       "all_to_all_chunks divides a slice)",
       false,
       slices_fault});
  rules.push_back({{hidden, kModel + "num_layers", kMoe + "num_experts",
                    kMoe + "expert_hidden_size", kModel + "ffn_hidden_size", kModel + "vocab_size"},
                   "the weights of the whole model stay below 4 PiB",
                   false,
                   size_fault});
}

}  // namespace moetwin
