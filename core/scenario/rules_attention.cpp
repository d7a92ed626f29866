// Rules of latent attention, of the norm of queries and keys, of rotary scaling and of context
// parallelism.
#include <fmt/format.h>

#include "core/scenario/rule_list.h"

namespace moetwin {
namespace {

std::string latent_fault(const Scenario& s, const Problems&) {
  const ModelConfig& m = s.model_config;
  if (!m.latent()) return "";
  const auto refuse = [](const std::string& is, const char* why, const char* legal) {
    return fmt::format("attention multi_head_latent with {}: {}; legal: {}", is, why, legal);
  };
  if (m.position_embedding != "rotary")
    return refuse("position_embedding " + m.position_embedding,
                  "its positions are the rotated part of queries and keys", "rotary");
  if (m.latent_attention.qk_rope_head_dim % 2 != 0)
    return refuse(fmt::format("qk_rope_head_dim {}", m.latent_attention.qk_rope_head_dim),
                  "rotary positions turn pairs", "an even width");
  if (m.kv_heads() != m.num_attention_heads)
    return refuse(fmt::format("num_key_value_heads {}", m.num_key_value_heads),
                  "every head has keys and values of its own", "0");
  if (m.head_dim != 0)
    return refuse(fmt::format("head_dim {}", m.head_dim),
                  "a head is qk_nope_head_dim + qk_rope_head_dim wide", "0");
  if (m.attention_bias) return refuse("attention_bias true", "there are no biases", "false");
  if (m.qk_norm) return refuse("qk_norm true", "the norms are those of the latents", "false");
  return "";
}

std::string norm_fault(const Scenario& s, const Problems&) {
  const ModelConfig& m = s.model_config;
  if (!m.qk_norm || m.qk_norm_over != "projection") return "";
  if (m.kv_heads() != m.num_attention_heads)
    return fmt::format(
        "qk_norm_over projection with num_key_value_heads {} of {} heads: queries and keys are "
        "equally wide; legal num_key_value_heads: 0, or qk_norm_over head",
        m.kv_heads(), m.num_attention_heads);
  const int64_t tp = s.distributed_config.tensor_parallel_size;
  if (tp == 1) return "";
  return fmt::format(
      "qk_norm_over projection with tensor_parallel_size {}: a rank has a part of the heads, and "
      "the norm is over all of them; legal tensor_parallel_size: 1, or qk_norm_over head",
      tp);
}

std::string context_fault(const Scenario& s, const Problems&) {
  const ModelConfig& m = s.model_config;
  const DistributedConfig& d = s.distributed_config;
  const int64_t cp = d.context_parallel_size, tp = d.tensor_parallel_size;
  if (cp == 1) return "";
  if (s.training_config.numerics != "none")
    return fmt::format(
        "context_parallel_size {} with training_config.numerics {}: its time, memory and traffic "
        "are modelled, its attention is not computed; legal: 1, or numerics none",
        cp, s.training_config.numerics);
  const bool by_heads = d.context_parallel_exchange == "a2a";
  const int64_t parts = by_heads ? cp : 2 * cp;
  if (m.sequence_length % parts != 0)
    return fmt::format(
        "context_parallel_size {} cuts a sequence into {} equal chunks ({}), and sequence_length "
        "{} leaves a rest of {}; legal sequence_length: a multiple of {}",
        cp, parts, by_heads ? "one a rank" : "two a rank, an early and a late one",
        m.sequence_length, m.sequence_length % parts, parts);
  if (by_heads && m.kv_heads() / tp % cp != 0)
    return fmt::format(
        "context_parallel_exchange a2a gives each of context_parallel_size {} ranks a part of the "
        "{} key-value heads ({} / tensor_parallel_size {}); legal context_parallel_size: {}; or "
        "context_parallel_exchange p2p, all_gather",
        cp, m.kv_heads() / tp, m.kv_heads(), tp, divisors_text(m.kv_heads() / tp));
  return "";
}

std::string yarn_fault(const Scenario& s, const Problems&) {
  const ModelConfig& m = s.model_config;
  if (m.rotary_scaling != "yarn") return "";
  if (m.position_embedding != "rotary")
    return fmt::format("rotary_scaling yarn with position_embedding {}; legal: rotary",
                       m.position_embedding);
  if (m.yarn.beta_fast > m.yarn.beta_slow) return "";
  return fmt::format("yarn.beta_fast {} is not above yarn.beta_slow {}; legal: more turns",
                     m.yarn.beta_fast, m.yarn.beta_slow);
}

}  // namespace

void add_attention_rules(std::vector<Rule>& rules) {
  const std::string heads = kModel + "num_attention_heads", kv = kModel + "num_key_value_heads";
  rules.push_back(
      {{kModel + "attention", kModel + "position_embedding", heads, kv, kModel + "head_dim",
        kModel + "attention_bias", kModel + "qk_norm", kModel + "latent_attention"},
       "latent attention is rotary, with as many key heads as heads, no biases, no "
       "norm of queries and keys and no head_dim of its own",
       false,
       latent_fault});
  rules.push_back({{kModel + "qk_norm_over", kModel + "qk_norm", heads, kv,
                    kDistributed + "tensor_parallel_size"},
                   "a norm over the whole projection needs as many key heads as heads, and no "
                   "tensor parallelism",
                   false,
                   norm_fault});
  rules.push_back({{kModel + "rotary_scaling", kModel + "position_embedding", kModel + "yarn"},
                   "YaRN is for rotary positions, and beta_fast is above beta_slow",
                   false,
                   yarn_fault});
  rules.push_back(
      {{kDistributed + "context_parallel_size", kTraining + "numerics", kModel + "sequence_length",
        kDistributed + "context_parallel_exchange", kModel + "num_key_value_heads",
        kDistributed + "tensor_parallel_size"},
       "context parallel ranks have equal chunks of sequences (a2a: and of heads), without "
       "numerics",
       false,
       context_fault});
}

}  // namespace moetwin
