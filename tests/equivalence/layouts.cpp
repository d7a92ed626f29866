#include "tests/equivalence/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace moetwin::test {

namespace {

const std::vector<std::string> kVariants{"plain",  "modern",   "noisy", "sigmoid-bias",
                                         "beside", "sequence", "late",  "latent"};

/// Pipelines of `PipelineCase` by name.
struct PipelineCase {
  const char* name;
  int64_t stages, chunks;
  const char* schedule;
  std::vector<int64_t> layers;  ///< of each stage; empty: equally many
};
const std::vector<PipelineCase> kPipelines{
    {"none", 1, 1, "1f1b", {}},
    {"gpipe-2", 2, 1, "gpipe", {}},
    {"1f1b-2", 2, 1, "1f1b", {}},
    {"zb-2", 2, 1, "zb_h1", {}},
    {"1f1b-4", 4, 1, "1f1b", {}},
    {"zb-4", 4, 1, "zb_h1", {}},
    {"interleaved-2x2", 2, 2, "interleaved_1f1b", {}},
    {"interleaved-4x2", 4, 2, "interleaved_1f1b", {1, 0, 1, 0, 1, 0, 1, 0}},
    {"uneven-3", 3, 1, "1f1b", {1, 1, 2}},
    {"ends-4", 4, 1, "gpipe", {0, 2, 2, 0}},  // embedding and head alone
};

const PipelineCase& pipeline_of(const Layout& l) {
  return *std::find_if(kPipelines.begin(), kPipelines.end(),
                       [&](const PipelineCase& c) { return l.pipeline == c.name; });
}

/// Two layers, or four where there are more stages.
int64_t layers_of(const Layout& l) {
  const PipelineCase& c = pipeline_of(l);
  return c.stages * c.chunks > 2 ? 4 : 2;
}

/// Of a step; interleaving takes whole groups of them.
int64_t micro_batches(const Layout& l) {
  const PipelineCase& c = pipeline_of(l);
  return l.accumulation * (c.chunks > 1 ? c.stages : 1);
}

void apply_variant(Scenario& s, const std::string& variant) {
  ModelConfig& m = s.model_config;
  MoeLayerConfig& moe = m.moe_layer_config;
  moe.aux_loss_factor = 0.05;
  if (variant == "modern") {
    m.normalization = "rmsnorm";
    m.position_embedding = "rotary";
    m.activation = moe.expert_activation = "swiglu";
    m.num_key_value_heads = 2;
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
  } else if (variant == "latent") {
    m.attention = "multi_head_latent";
    m.latent_attention = {6, 5, 4, 2, 3};
    m.normalization = "rmsnorm";
    m.position_embedding = "rotary";
    m.rotary_scaling = "yarn";
    m.rotary_scaling_factor = 4;
    m.yarn.original_sequence_length = 4;
    m.yarn.mscale_all_dim = 1;
    m.activation = moe.expert_activation = "swiglu";
    m.attention_bias = m.ffn_bias = moe.expert_bias = false;
    moe.first_dense_layers = 1;
    moe.shared_expert_hidden_size = 8;
    s.routing.score_function = "sigmoid";
    s.routing.normalize_weights = 1;
    if (moe.num_experts >= 4 * moe.top_k) s.routing.groups = 2;
    moe.bias_update_rate = 0.05;
  }
}

/// Layers of 4 heads (2 of keys and values in "modern"), expert width 16.
bool valid(const Layout& l) {
  if (l.top_k > l.experts || l.world() * pipeline_of(l).stages > 16) return false;
  if (l.variant == "modern" && l.tp > 2) return false;
  if (l.world() % (l.ep * l.etp) != 0) return false;
  const int64_t columns = std::min(l.ep, l.experts);
  return l.experts % columns == 0 && l.ep % columns == 0 && 16 % (l.ep / columns * l.etp) == 0;
}

/// Every way to lay up to 16 ranks out on the two grids.
std::vector<Layout> grids() {
  std::vector<Layout> all;
  Layout l;
  for (l.tp = 1; l.tp <= 4; l.tp *= 2)
    for (const bool sequence : {false, true})
      for (l.dp = 1; l.dp * l.tp <= 16; ++l.dp)
        for (l.ep = 1; l.ep <= 16; ++l.ep)
          for (l.etp = 1; l.etp <= 4; l.etp *= 2)
            for (const bool folded : {false, true}) {
              l.folded = folded, l.sequence_parallel = sequence;
              if (sequence && l.tp == 1) continue;
              if (!folded && l.etp != 1 && l.etp != l.tp) continue;
              if (l.world() > 16 || l.world() % (l.ep * l.etp) != 0) continue;
              // What could be written without folding is no other layout.
              const bool plain = l.etp == 1 || l.etp == l.tp;
              if (folded && plain && l.dp % l.ep == 0) continue;
              all.push_back(l);
            }
  return all;
}

const std::vector<const char*> kCapacities{"none", "position", "probability"};
const std::vector<const char*> kOptimizers{"adamw", "sgd"};

/// The factors that no other restricts, from one number.
constexpr int64_t kFree = 3 * 3 * 2 * 2 * 2 * 2 * 2;
void set_free(Layout& l, int64_t n) {
  const auto take = [&n](int64_t levels) { return std::exchange(n, n / levels) % levels; };
  l.capacity = kCapacities[static_cast<size_t>(take(3))];
  l.accumulation = int64_t{1} << take(3);
  l.micro_batch = 1 + take(2);
  l.zero = take(2);
  l.optimizer = kOptimizers[static_cast<size_t>(take(2))];
  l.overlap = take(2) != 0;
  l.pairs = take(2) != 0;
}

/// Levels of a layout as text, one per factor; those that restrict each other first.
constexpr size_t kBound = 9, kGrid = 5;
std::vector<std::string> levels(const Layout& l) {
  return {std::to_string(l.dp),
          std::to_string(l.ep),
          std::to_string(l.tp),
          fmt::format("{} {}", l.etp, l.folded ? "folded" : "unfolded"),
          l.sequence_parallel ? "sequence" : "whole",
          std::to_string(l.experts),
          std::to_string(l.top_k),
          l.variant,
          l.pipeline,
          l.capacity,
          std::to_string(l.accumulation),
          std::to_string(l.micro_batch),
          std::to_string(l.zero),
          l.optimizer,
          l.overlap ? "overlap" : "plain",
          l.paired() ? "pairs" : "single"};
}

using Pair = std::tuple<size_t, std::string, size_t, std::string>;
std::vector<Pair> pairs(const Layout& l) {
  const auto values = levels(l);
  std::vector<Pair> out;
  for (size_t i = 0; i < values.size(); ++i)
    for (size_t j = i + 1; j < values.size(); ++j) out.emplace_back(i, values[i], j, values[j]);
  // And every grid of up to eight ranks once.
  if (l.world() > 8) return out;
  std::string grid;
  for (size_t i = 0; i < kGrid; ++i) grid += values[i] + " ";
  out.emplace_back(values.size(), grid, values.size(), "");
  return out;
}

/// All valid choices of the factors that restrict each other.
std::vector<Layout> bound_choices() {
  std::vector<Layout> all;
  for (Layout l : grids())
    for (const int64_t experts : {1, 2, 4, 6, 8})
      for (const int64_t k : {1, 2, 4})
        for (const std::string& variant : kVariants) {
          l.experts = experts, l.top_k = k, l.variant = variant;
          // One pipeline in turns beside none.
          for (const size_t pipeline : {size_t{0}, 1 + all.size() % (kPipelines.size() - 1)}) {
            l.pipeline = kPipelines[pipeline].name;
            if (valid(l)) all.push_back(l);
          }
        }
  return all;
}

}  // namespace

bool Layout::paired() const {
  const std::string schedule = pipeline_of(*this).schedule;
  return pairs && (schedule == "1f1b" || schedule == "interleaved_1f1b");
}

std::string Layout::name() const {
  return fmt::format(
      "DP={} EP={} TP={} ETP={}{}{} E={} k={} capacity={} accumulation={} micro-batch={} zero={} "
      "{} {} {} {} pipeline={}",
      dp, ep, tp, etp, folded ? " folded" : "", sequence_parallel ? " sequence" : "", experts,
      top_k, capacity, accumulation, micro_batch, zero, optimizer,
      overlap ? "overlap" : "no-overlap", paired() ? "pairs" : "no-pairs", variant, pipeline);
}

std::vector<Layout> whole_product() {
  std::vector<Layout> all;
  size_t turn = 0;
  for (Layout l : grids())
    for (const int64_t experts : {1, 2, 4, 6, 8})
      for (const int64_t k : {1, 2, 4}) {
        l.experts = experts, l.top_k = k, l.variant = kVariants[0];
        if (!valid(l)) continue;
        const bool split = l.tp > 1 || l.etp > 1;
        for (int64_t n = 0; n < (split ? 3 : kFree / 4); ++n, ++turn) {
          // 29 has no factor in common with kFree: turns meet all of it.
          set_free(l, split ? n + 3 * static_cast<int64_t>(turn * 29 % (kFree / 3)) : n);
          if (!split) l.overlap = turn % 2 != 0;
          if (!split) l.pairs = turn / 2 % 2 != 0;
          l.pipeline = kPipelines[0].name;
          do l.variant = kVariants[turn / 2 % kVariants.size()];
          while (!valid(l) && ++turn);
          l.pipeline = kPipelines[turn / 3 % kPipelines.size()].name;
          if (!valid(l)) l.pipeline = kPipelines[0].name;
          all.push_back(l);
        }
      }
  return all;
}

std::vector<Layout> pairwise_cover() {
  const std::vector<Layout> bound = bound_choices();
  std::set<Pair> open;
  std::set<std::pair<size_t, std::string>> seen;
  for (Layout l : bound) {
    bool fresh = false;
    const auto values = levels(l);
    for (size_t i = 0; i < kBound; ++i) fresh = seen.emplace(i, values[i]).second || fresh;
    // The free factors go with every level of the others: met when the level is met first.
    for (int64_t n = 0; n < (fresh ? kFree : 1); ++n) {
      set_free(l, n);
      for (Pair& p : pairs(l)) open.insert(std::move(p));
    }
  }
  // Greedy: among a fixed sample that walks the whole space, take the layout that closes most
  // pairs.
  std::vector<Layout> cover;
  const int64_t size = static_cast<int64_t>(bound.size()) * kFree;
  int64_t at = 0;
  while (!open.empty()) {
    Layout best;
    size_t best_closed = 0;
    for (int64_t tried = 0; tried < 400 || (best_closed == 0 && tried < size); ++tried) {
      at = (at + 7919) % size;
      Layout l = bound[static_cast<size_t>(at / kFree)];
      set_free(l, at % kFree);
      size_t closed = 0;
      for (const Pair& p : pairs(l)) closed += open.count(p);
      if (closed > best_closed) best = l, best_closed = closed;
    }
    for (const Pair& p : pairs(best)) open.erase(p);
    cover.push_back(best);
  }
  return cover;
}

Scenario layout_scenario(const Layout& l, int64_t steps) {
  Scenario s;
  s.name = "layout";
  ModelConfig& m = s.model_config;
  m.hidden_size = 8;
  m.num_layers = layers_of(l);
  m.num_attention_heads = 4;
  m.ffn_hidden_size = 12;
  m.vocab_size = 17;  // padded where TP splits it
  m.sequence_length = 8;
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
  const PipelineCase& pipeline = pipeline_of(l);
  d.world_size = l.world() * pipeline.stages;
  d.pipeline_parallel_size = pipeline.stages;
  d.virtual_pipeline_size = pipeline.chunks;
  d.pipeline_schedule = pipeline.schedule;
  d.layers_per_stage = pipeline.layers;
  d.data_parallel_size = l.folded ? 1 : l.dp;
  d.expert_parallel_size = l.ep;
  d.tensor_parallel_size = l.tp;
  d.expert_tensor_parallel_size = l.etp;
  d.parallel_folding = l.folded;
  d.sequence_parallel = l.sequence_parallel;
  d.zero_stage = l.zero;
  d.comm_optimization.all_to_all_overlap = l.overlap;
  d.comm_optimization.micro_batch_overlap = l.paired();
  d.comm_optimization.gradient_bucket_bytes = 4096;  // several buckets even here
  TrainingConfig& t = s.training_config;
  t.steps = steps;
  t.micro_batch_size = l.micro_batch;
  t.global_batch_size = l.ddp() * l.micro_batch * micro_batches(l);
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
  d.tensor_parallel_size = d.expert_tensor_parallel_size = 1;
  d.parallel_folding = d.sequence_parallel = false;
  d.pipeline_parallel_size = d.virtual_pipeline_size = 1;
  d.pipeline_schedule = "1f1b";
  d.layers_per_stage.clear();
  d.zero_stage = 0;
  d.comm_optimization.all_to_all_overlap = d.comm_optimization.micro_batch_overlap = false;
  return s;
}

std::string reference_key(const Layout& l) {
  return fmt::format("{} {} {} {} {} {} {} {}", l.experts, l.top_k, l.capacity, l.micro_batch,
                     l.ddp() * l.micro_batch * micro_batches(l), l.optimizer, l.variant,
                     layers_of(l));
}

}  // namespace moetwin::test
