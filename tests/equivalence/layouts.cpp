#include "tests/equivalence/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace moetwin::test {

namespace {

const std::vector<std::string> kVariants{"plain",  "modern",   "noisy", "sigmoid-bias",
                                         "beside", "sequence", "late"};

void apply_variant(Scenario& s, const std::string& variant) {
  ModelConfig& m = s.model_config;
  MoeLayerConfig& moe = m.moe_layer_config;
  moe.aux_loss_factor = 0.05;
  if (variant == "modern") {
    m.normalization = "rmsnorm";
    m.position_embedding = "rotary";
    m.activation = moe.expert_activation = "swiglu";
    m.num_key_value_heads = 1;
    m.qk_norm = true;
    m.tie_embeddings = false;
    m.attention_bias = m.ffn_bias = moe.expert_bias = false;
    s.routing.normalize_weights = 1;
  } else if (variant == "noisy") {
    m.dropout = 0.1;
    s.routing.jitter_epsilon = 0.01;
    s.routing.noise = {"gumbel", 0.1};
    moe.shared_expert_hidden_size = 8;
    moe.shared_expert_weighted = true;
  } else if (variant == "sigmoid-bias") {
    s.routing.score_function = "sigmoid";
    s.routing.normalize_weights = 1;
    s.routing.weight_scale = 2.5;
    moe.bias_update_rate = 0.05;
    moe.z_loss_factor = 0.01;
  } else if (variant == "beside") {
    moe.dense_ffn_beside_moe = true;
    moe.moe_every_k_layers = 2;
    moe.importance_loss_factor = 0.05;
    moe.z_loss_factor = 0.01;
    m.activation = "gelu_tanh";
  } else if (variant == "sequence") {
    moe.aux_loss_scope = "sequence";
    moe.expert_activation = "gelu_tanh";
    s.routing.noise = {"gaussian", 0.1};
  } else if (variant == "late") {
    m.normalization = "rmsnorm";
    m.embedding_offset = 0.2;
    s.routing.weight_delay_steps = 2;
    moe.bias_update_rate = 0.05;
    moe.bias_update_delay_steps = 3;
    moe.bias_count_ema = 0.5;
  }
}

bool valid(const Layout& l) {
  if (l.top_k > l.experts || l.dp * l.ep > 16) return false;
  const int64_t columns = std::min(l.ep, l.experts);
  return l.experts % columns == 0 && l.ep % columns == 0 && 16 % (l.ep / columns) == 0;
}

/// Levels of a layout as text, one per factor.
std::vector<std::string> levels(const Layout& l) {
  return {fmt::format("{}x{}", l.dp, l.ep), std::to_string(l.experts),
          std::to_string(l.top_k),          l.capacity,
          std::to_string(l.accumulation),   std::to_string(l.micro_batch),
          std::to_string(l.zero),           l.optimizer,
          l.overlap ? "overlap" : "plain",  l.variant};
}

using Pair = std::tuple<size_t, std::string, size_t, std::string>;
std::vector<Pair> pairs(const Layout& l) {
  const auto values = levels(l);
  std::vector<Pair> out;
  for (size_t i = 0; i < values.size(); ++i)
    for (size_t j = i + 1; j < values.size(); ++j) out.emplace_back(i, values[i], j, values[j]);
  return out;
}

}  // namespace

std::string Layout::name() const {
  return fmt::format(
      "DP={} EP={} E={} k={} capacity={} accumulation={} micro-batch={} zero={} {} {} {}", dp, ep,
      experts, top_k, capacity, accumulation, micro_batch, zero, optimizer,
      overlap ? "overlap" : "no-overlap", variant);
}

std::vector<Layout> all_layouts(bool whole_product) {
  std::vector<Layout> all;
  Layout l;
  size_t turn = 0;
  for (l.dp = 1; l.dp <= 16; ++l.dp)
    for (l.ep = 1; l.dp * l.ep <= 16; ++l.ep)
      for (const int64_t experts : {1, 2, 4, 6, 8})
        for (const int64_t k : {1, 2, 4})
          for (const char* capacity : {"none", "position", "probability"})
            for (const int64_t accumulation : {1, 2, 4})
              for (const int64_t micro_batch : {1, 2})
                for (const int64_t zero : {0, 1})
                  for (const char* optimizer : {"adamw", "sgd"}) {
                    l.experts = experts;
                    l.top_k = k;
                    l.capacity = capacity;
                    l.accumulation = accumulation;
                    l.micro_batch = micro_batch;
                    l.zero = zero;
                    l.optimizer = optimizer;
                    if (!valid(l)) continue;
                    // Overlap and kind of model take turns in the whole product; the cover chooses
                    // them as well.
                    const size_t variants = kVariants.size() * 2;
                    for (size_t v = whole_product ? turn % variants : 0; v < variants;
                         v += whole_product ? variants : 1) {
                      l.overlap = v % 2 != 0;
                      l.variant = kVariants[v / 2];
                      all.push_back(l);
                    }
                    ++turn;
                  }
  return all;
}

std::vector<Layout> pairwise_cover(const std::vector<Layout>& all) {
  std::set<Pair> open;
  for (const Layout& l : all)
    for (Pair& p : pairs(l)) open.insert(std::move(p));
  // Greedy: among a fixed sample that walks the whole list, take the layout that closes most pairs.
  std::vector<Layout> cover;
  size_t at = 0;
  while (!open.empty()) {
    size_t best = 0, best_closed = 0;
    for (size_t tried = 0; tried < 400 || (best_closed == 0 && tried < all.size()); ++tried) {
      at = (at + 7919) % all.size();
      size_t closed = 0;
      for (const Pair& p : pairs(all[at])) closed += open.count(p);
      if (closed > best_closed) best = at, best_closed = closed;
    }
    for (const Pair& p : pairs(all[best])) open.erase(p);
    cover.push_back(all[best]);
  }
  return cover;
}

Scenario layout_scenario(const Layout& l, int64_t steps) {
  Scenario s;
  s.name = "layout";
  ModelConfig& m = s.model_config;
  m.hidden_size = 8;
  m.num_layers = 2;
  m.num_attention_heads = 2;
  m.ffn_hidden_size = 12;
  m.vocab_size = 17;
  m.sequence_length = 6;
  m.init_std = 0.3;  // large enough that scores differ and gradients of all parts are felt
  MoeLayerConfig& moe = m.moe_layer_config;
  moe.num_experts = l.experts;
  moe.top_k = l.top_k;
  moe.expert_hidden_size = 16;
  if (l.capacity != "none") {
    moe.capacity_factor = 1.0;
    moe.drop_policy = l.capacity;
  }
  apply_variant(s, l.variant);
  // With rotary positions two equal tokens at the start of a sequence are equal in every layer: an
  // exact tie of their weights, which rounding decides. Which one a full expert drops is then not a
  // matter of the layout.
  if (l.capacity == "probability" && m.position_embedding == "rotary")
    m.position_embedding = "learned";
  DistributedConfig& d = s.distributed_config;
  d.world_size = l.dp * l.ep;
  d.data_parallel_size = l.dp;
  d.expert_parallel_size = l.ep;
  d.zero_stage = l.zero;
  d.comm_optimization.all_to_all_overlap = l.overlap;
  d.comm_optimization.gradient_bucket_bytes = 4096;  // several buckets even here
  TrainingConfig& t = s.training_config;
  t.steps = steps;
  t.micro_batch_size = l.micro_batch;
  t.global_batch_size = l.dp * l.ep * l.micro_batch * l.accumulation;
  t.dtype = "fp64";
  t.optimizer = l.optimizer;
  t.learning_rate = l.optimizer == "sgd" ? 0.5 : 0.003;
  t.max_grad_norm = 0.05;  // always active: gradients here have norms near 1
  t.validation_sequences = 0;
  s.data.format = "synthetic";
  s.cluster.profile = "toy-8gpu";
  return s;
}

Scenario reference_scenario(const Layout& l, int64_t steps) {
  Scenario s = layout_scenario(l, steps);
  DistributedConfig& d = s.distributed_config;
  d.world_size = d.data_parallel_size = d.expert_parallel_size = 1;
  d.zero_stage = 0;
  d.comm_optimization.all_to_all_overlap = false;
  return s;
}

std::string reference_key(const Layout& l) {
  return fmt::format("{} {} {} {} {} {} {}", l.experts, l.top_k, l.capacity, l.micro_batch,
                     l.dp * l.ep * l.micro_batch * l.accumulation, l.optimizer, l.variant);
}

}  // namespace moetwin::test
