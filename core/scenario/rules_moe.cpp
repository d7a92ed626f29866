// Rules of MoE layers, their losses and routing.
#include <fmt/format.h>

#include <cmath>

#include "core/base/units.h"
#include "core/scenario/rule_list.h"
#include "core/scenario/sizes.h"

namespace moetwin {
namespace {

std::string top_k_fault(const Scenario& s, const Problems&) {
  const MoeLayerConfig& moe = s.model_config.moe_layer_config;
  if (moe.num_experts == 0 || moe.top_k <= moe.num_experts) return "";
  return fmt::format(
      "top_k {} exceeds num_experts {}: a token goes to distinct experts; legal top_k: 1 to {}, or "
      "num_experts of at least {}",
      moe.top_k, moe.num_experts, moe.num_experts, moe.top_k);
}

std::string every_fault(const Scenario& s, const Problems&) {
  const MoeLayerConfig& moe = s.model_config.moe_layer_config;
  if (moe.num_experts == 0 || s.model_config.num_moe_layers() > 0) return "";
  if (moe.first_dense_layers > 0 && moe.moe_every_k_layers <= s.model_config.num_layers)
    return fmt::format(
        "of num_layers {}, the first {} are dense (first_dense_layers), and of the others none is "
        "an MoE layer with moe_every_k_layers {}; legal: first_dense_layers of at most {}",
        s.model_config.num_layers, moe.first_dense_layers, moe.moe_every_k_layers,
        s.model_config.num_layers / moe.moe_every_k_layers * moe.moe_every_k_layers - 1);
  return fmt::format(
      "moe_every_k_layers {} exceeds num_layers {}: no layer would be an MoE layer; legal: 1 to {}",
      moe.moe_every_k_layers, s.model_config.num_layers, s.model_config.num_layers);
}

std::string groups_fault(const Scenario& s, const Problems&) {
  const int64_t experts = s.model_config.moe_layer_config.num_experts;
  const int64_t k = s.model_config.moe_layer_config.top_k;
  const RoutingConfig& r = s.routing;
  if (experts == 0 || k > experts) return "";
  if (experts % r.groups != 0)
    return fmt::format("groups {} does not divide num_experts {} (rest {}); legal groups: {}",
                       r.groups, experts, experts % r.groups, divisors_text(experts));
  if (r.kept_groups > r.groups)
    return fmt::format("kept_groups {} exceeds groups {}; legal kept_groups: 1 to {}",
                       r.kept_groups, r.groups, r.groups);
  const int64_t group_size = experts / r.groups;
  if (r.kept_groups * group_size >= k) return "";
  return fmt::format(
      "kept_groups {} x {} experts a group = {} experts to choose from, fewer than top_k {}; legal "
      "kept_groups: {} to {}",
      r.kept_groups, group_size, r.kept_groups * group_size, k, (k + group_size - 1) / group_size,
      r.groups);
}

// Bytes of the expert buffers of one layer that a capacity factor asks for, against the tokens
// there are (user report: a factor of 16384 asked for about a terabyte).
std::string capacity_fault(const Scenario& s, const Problems&) {
  const ModelConfig& m = s.model_config;
  const MoeLayerConfig& moe = m.moe_layer_config;
  if (!moe.capacity_factor || moe.num_experts == 0) return "";
  const double tokens =
      double(s.training_config.micro_batch_size) * double(local_sequence_length(s));
  const double experts = double(moe.num_experts), k = double(moe.top_k);
  const double capacity = std::ceil(*moe.capacity_factor * tokens * k / experts);
  const double bytes = experts * capacity * double(m.hidden_size) * 4;
  constexpr double kMostBytes = 64.0 * (1 << 30);
  if (capacity <= tokens || bytes <= kMostBytes) return "";
  return fmt::format(
      "capacity_factor {} means {:.0f} places for each of {} experts, of {} tokens in all: buffers "
      "of {} x {:.0f} x hidden_size {} x 4 bytes = {} a layer; legal: at most num_experts / top_k "
      "= "
      "{:g}, from where nothing is dropped, or null",
      *moe.capacity_factor, capacity, moe.num_experts, tokens, moe.num_experts, capacity,
      m.hidden_size, format_bytes(bytes), experts / k);
}

// Rows of the permuted buffer are numbered in 32 bits, as on every GPU library for sorting.
std::string assignments_fault(const Scenario& s, const Problems&) {
  const MoeLayerConfig& moe = s.model_config.moe_layer_config;
  const TrainingConfig& t = s.training_config;
  if (s.model_config.num_moe_layers() == 0) return "";
  const int64_t cp = s.distributed_config.context_parallel_size;
  const int64_t a_sequence = local_sequence_length(s) * moe.top_k;
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  if (t.micro_batch_size <= kMost / a_sequence) return "";
  return fmt::format(
      "micro_batch_size {} x sequence_length {}{} x top_k {} = {:.0f} assignments of one "
      "micro-batch, "
      "at most {} can be numbered; legal micro_batch_size: 1 to {}",
      t.micro_batch_size, s.model_config.sequence_length,
      cp > 1 ? fmt::format(" / context_parallel_size {}", cp) : "", moe.top_k,
      double(t.micro_batch_size) * double(a_sequence), kMost, kMost / a_sequence);
}

std::string never_drops(const Scenario& s, const Problems&) {
  const MoeLayerConfig& moe = s.model_config.moe_layer_config;
  if (!moe.capacity_factor || moe.num_experts == 0) return "";
  const double all = double(moe.num_experts) / double(moe.top_k);
  if (*moe.capacity_factor < all) return "";
  return fmt::format(
      "capacity_factor {} never drops a token: from num_experts {} / top_k {} = {:g} on an expert "
      "has a place for every token; null says the same",
      *moe.capacity_factor, moe.num_experts, moe.top_k, all);
}

std::string loss_without_layers(const Scenario& s, const Problems& problems) {
  if (s.model_config.num_moe_layers() > 0) return "";
  std::string names;
  const MoeLayerConfig& moe = s.model_config.moe_layer_config;
  const auto add = [&](const char* name, double value) {
    if (problems.is_set(kMoe + name) && value != 0)
      names += fmt::format("{}{} {}", names.empty() ? "" : ", ", name, value);
  };
  add("aux_loss_factor", moe.aux_loss_factor);
  add("z_loss_factor", moe.z_loss_factor);
  add("importance_loss_factor", moe.importance_loss_factor);
  add("load_variance_factor", moe.load_variance_factor);
  add("bias_update_rate", moe.bias_update_rate);
  if (names.empty()) return "";
  return fmt::format("coefficient set but loss off: {} without MoE layers (num_experts {})", names,
                     moe.num_experts);
}

std::string loss_without_learning(const Scenario& s, const Problems& problems) {
  const MoeLayerConfig& moe = s.model_config.moe_layer_config;
  if (s.model_config.num_moe_layers() == 0 || s.routing.source == "learned") return "";
  if (!problems.is_set(kMoe + "aux_loss_factor") || moe.aux_loss_factor == 0) return "";
  return fmt::format(
      "coefficient set but loss off: aux_loss_factor {} with routing.source {}, which does not "
      "learn",
      moe.aux_loss_factor, s.routing.source);
}

std::string no_router_gradient(const Scenario& s, const Problems&) {
  const MoeLayerConfig& moe = s.model_config.moe_layer_config;
  if (moe.num_experts == 0 || moe.top_k != 1 || s.routing.normalize_weights == 0) return "";
  return fmt::format(
      "normalize_weights {} with top_k 1 makes every weight 1: the router gets no gradient from "
      "the "
      "task",
      s.routing.normalize_weights);
}

std::string idle_shared_weights(const Scenario& s, const Problems&) {
  const MoeLayerConfig& moe = s.model_config.moe_layer_config;
  if (!moe.shared_expert_weighted || moe.shared_expert_hidden_size != 0) return "";
  return "shared_expert_weighted without a shared expert (shared_expert_hidden_size 0) changes "
         "nothing";
}

std::string idle_noise(const Scenario& s, const Problems& problems) {
  if (s.routing.noise.kind != "none" || s.routing.noise.scale == 0) return "";
  if (!problems.is_set("routing.noise.scale")) return "";
  return fmt::format("scale {} with kind none adds no noise; legal kinds: gaussian, gumbel",
                     s.routing.noise.scale);
}

std::string idle_bias_settings(const Scenario& s, const Problems&) {
  const MoeLayerConfig& moe = s.model_config.moe_layer_config;
  if (moe.bias_update_rate > 0 || (moe.bias_update_delay_steps == 0 && moe.bias_count_ema == 0))
    return "";
  return fmt::format(
      "bias_update_delay_steps {} and bias_count_ema {} without bias_update_rate change nothing",
      moe.bias_update_delay_steps, moe.bias_count_ema);
}

std::string idle_weight_delay(const Scenario& s, const Problems&) {
  if (s.routing.weight_delay_steps == 0) return "";
  if (s.model_config.num_moe_layers() > 0 && s.routing.source == "learned") return "";
  return fmt::format("weight_delay_steps {} without a learned router changes nothing",
                     s.routing.weight_delay_steps);
}

std::string ep_without_experts(const Scenario& s, const Problems&) {
  const int64_t ep = s.distributed_config.expert_parallel_size;
  if (s.model_config.moe_layer_config.num_experts > 0 || ep == 1) return "";
  return fmt::format(
      "expert_parallel_size {} without experts (num_experts 0) is data parallelism only", ep);
}

std::string experts_split_fault(const Scenario& s, const Problems&) {
  const DistributedConfig& d = s.distributed_config;
  const int64_t experts = s.model_config.moe_layer_config.num_experts;
  const int64_t etp =
      d.expert_tensor_parallel_size ? d.expert_tensor_parallel_size : d.tensor_parallel_size;
  if (experts == 0) return "";
  const int64_t hidden_sharding = std::max<int64_t>(1, d.expert_parallel_size / experts);
  const int64_t width = s.model_config.expert_width() / hidden_sharding;
  if (width % etp == 0) return "";
  return fmt::format(
      "the expert width {} does not divide over expert_tensor_parallel_size {} (rest {}); legal: "
      "{}",
      width, etp, width % etp, divisors_text(width));
}

}  // namespace

void add_moe_rules(std::vector<Rule>& rules) {
  const std::string experts = kMoe + "num_experts", k = kMoe + "top_k";
  rules.push_back({{k, experts}, "top_k is at most num_experts", false, top_k_fault});
  rules.push_back(
      {{kMoe + "moe_every_k_layers", kMoe + "first_dense_layers", kModel + "num_layers", experts},
       "moe_every_k_layers and first_dense_layers leave an MoE layer",
       false,
       every_fault});
  rules.push_back({{"routing.kept_groups", "routing.groups", experts, k},
                   "groups divides num_experts, and the kept groups hold at least top_k experts",
                   false,
                   groups_fault});
  rules.push_back({{kMoe + "capacity_factor", experts, k, kTraining + "micro_batch_size",
                    kModel + "sequence_length", kModel + "hidden_size"},
                   "capacity beyond the tokens there are stays below 64 GiB a layer",
                   false,
                   capacity_fault});
  rules.push_back({{kTraining + "micro_batch_size", kModel + "sequence_length", k, experts,
                    kMoe + "moe_every_k_layers", kModel + "num_layers"},
                   "tokens of a micro-batch x top_k are below 2^31",
                   false,
                   assignments_fault});
  rules.push_back({{"distributed_config", kMoe + "expert_hidden_size", experts},
                   "expert_tensor_parallel_size divides the expert width of a rank",
                   false,
                   experts_split_fault});
  rules.push_back({{kMoe + "capacity_factor", experts, k},
                   "a capacity factor of num_experts / top_k or more drops nothing",
                   true,
                   never_drops});
  rules.push_back(
      {{kMoe + "aux_loss_factor", kMoe + "z_loss_factor", kMoe + "importance_loss_factor",
        kMoe + "load_variance_factor", kMoe + "bias_update_rate", experts},
       "a balance coefficient without MoE layers does nothing",
       true,
       loss_without_layers});
  rules.push_back({{kMoe + "aux_loss_factor", "routing.source"},
                   "a balance coefficient with a scripted router does nothing",
                   true,
                   loss_without_learning});
  rules.push_back({{"routing.normalize_weights", k, experts},
                   "normalised weights with top_k 1 leave the router without task gradient",
                   true,
                   no_router_gradient});
  rules.push_back({{kMoe + "shared_expert_weighted", kMoe + "shared_expert_hidden_size"},
                   "weighing needs a shared expert",
                   true,
                   idle_shared_weights});
  rules.push_back({{"routing.noise"}, "noise needs a kind", true, idle_noise});
  rules.push_back({{kMoe + "bias_update_delay_steps", kMoe + "bias_count_ema"},
                   "a delay or an average of bias counts needs a bias",
                   true,
                   idle_bias_settings});
  rules.push_back({{"routing.weight_delay_steps", "routing.source", experts},
                   "a delay of router weights needs a router that learns",
                   true,
                   idle_weight_delay});
  rules.push_back({{kDistributed + "expert_parallel_size", experts},
                   "expert parallelism needs experts",
                   true,
                   ep_without_experts});
}

}  // namespace moetwin
