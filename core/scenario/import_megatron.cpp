#include "core/scenario/import_megatron.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>

#include "core/scenario/key_prefixes.h"
#include "core/scenario/megatron_arguments.h"

namespace moetwin {
namespace {

/// Arguments that have no counterpart because what they choose is always so here, or is no matter
/// of a scenario.
constexpr std::pair<const char*, const char*> kReasons[] = {
    {"moe-grouped-gemm", "experts are always one grouped product"},
    {"moe-router-dtype", "the router is always fp32"},
    {"moe-lbl-in-fp32", "the balance loss is always fp32"},
    {"moe-permute-fusion", "always fused"},
    {"moe-router-fusion", "always fused"},
    {"moe-token-dispatcher-type", "always all-to-all"},
    {"moe-per-layer-logging", "routing is always recorded per layer"},
    {"use-flash-attn", "attention never stores its scores"},
    {"attention-softmax-in-fp32", "always so"},
    {"accumulate-allreduce-grads-in-fp32", "gradients are always fp32"},
    {"DDP-impl", "one kind"},
    {"load", "name it with moetwin run --resume"},
    {"tensorboard-dir", "a run directory has its series"},
    {"num-workers", "data is read in place"},
    {"vocab-file", "data is tokens already"},
    {"merge-file", "data is tokens already"},
    {"tokenizer-type", "data is tokens already"},
    {"tokenizer-model", "data is tokens already"},
    {"use-mcore-models", "one kind"},
    {"no-load-optim", "a checkpoint is loaded whole"},
    {"no-load-rng", "draws depend on seed and step alone"},
    {"distributed-backend", "nccl is what is used or modelled"},
    {"transformer-impl", "one kind"},
    {"node_rank", "from the environment"},
    {"node-rank", "from the environment"},
    {"master_addr", "from the environment"},
    {"master-addr", "from the environment"},
    {"master_port", "from the environment"},
    {"master-port", "from the environment"},
    {"rdzv_endpoint", "from the environment"},
    {"rdzv_backend", "from the environment"},
    {"moe-shared-expert-overlap", "the shared expert always runs beside the exchange"},
    {"overlap-p2p-communication", "transfers between stages always run beside compute"},
    {"overlap-p2p-communication-warmup-flush",
     "transfers between stages always run beside compute"},
    {"no-overlap-p2p-communication", "transfers between stages always run beside compute"},
    {"tp-comm-overlap", "collectives of TP are not overlapped"},
    {"delay-wgrad-compute", "legal: pipeline_schedule zb_h1, which delays gradients of parameters"},
    {"optimizer-cpu-offload", "legal: fsdp.cpu_offload, with sharded parameters"},
    {"cpu-offloading", "activations stay on the GPU"},
    {"distribute-saved-activations", "legal: sequence_parallel"},
    {"ckpt-format", "one format, which any layout loads"},
    {"use-dist-ckpt", "checkpoints are always free of the layout"},
    {"dist-ckpt-format", "one format, which any layout loads"},
    {"ckpt-fully-parallel-save", "checkpoint.type sharded: every rank writes what it owns"},
    {"ckpt-fully-parallel-load", "every rank reads what it needs"}};

class Importer {
 public:
  Importer(MegatronArguments& in, ScenarioDraft& draft) : in_(in), draft_(draft) {}

  void run() {
    model();
    experts();
    training();
    import_megatron_layout(in_, all_ranks_ ? expert_count_ : 0, &draft_);
    data();
    in_.leave_rest([](const std::string& name) {
      for (const auto& [known, reason] : kReasons)
        if (name == known) return reason;
      return "no counterpart";
    });
  }

 private:
  using Argument = MegatronArguments::Argument;
  Argument* find(const std::string& name) { return in_.find(name); }
  bool flag(const std::string& name) { return in_.flag(name); }
  std::optional<std::string> text(const std::string& name) { return in_.text(name); }
  std::optional<double> number(const std::string& name) { return in_.number(name); }
  std::optional<int64_t> integer(const std::string& name) { return in_.integer(name); }
  void leave(Argument& a, const std::string& reason) { in_.leave(a, reason); }
  void leave(const std::string& name, const std::string& reason) { in_.leave(name, reason); }
  void set(const std::string& key, const Json::Value& value) { draft_.set(key, value); }
  void take(const std::string& key, std::optional<int64_t> value) {
    if (value) set(key, Json::Value(Json::Int64(*value)));
  }
  void take(const std::string& key, std::optional<double> value) {
    if (value) set(key, Json::Value(*value));
  }

  void model();
  void latent_attention();
  void experts();
  void expert_loss(double layers);
  void megablocks(double layers);
  void training();
  void schedule(int64_t steps);
  void loss_scale();
  void recompute();
  void data();

  MegatronArguments& in_;
  ScenarioDraft& draft_;
  int64_t expert_count_ = 0, batch_ = 0;
  bool all_ranks_ = false;  ///< experts are spread over all data-parallel ranks
};

void Importer::model() {
  take(kModel + "num_layers", integer("num-layers"));
  take(kModel + "hidden_size", integer("hidden-size"));
  take(kModel + "ffn_hidden_size", integer("ffn-hidden-size"));
  take(kModel + "num_attention_heads", integer("num-attention-heads"));
  if (flag("group-query-attention"))
    take(kModel + "num_key_value_heads", integer("num-query-groups"));
  if (!find("multi-latent-attention")) take(kModel + "head_dim", integer("kv-channels"));
  const auto length = integer("seq-length");
  take(kModel + "sequence_length", length);
  if (const auto positions = integer("max-position-embeddings"); positions && positions != length)
    leave("max-position-embeddings", "positions are as many as sequence_length");
  if (const auto kind = text("normalization"))
    set(kModel + "normalization", *kind == "RMSNorm" ? "rmsnorm" : "layernorm");
  for (const char* name : {"norm-epsilon", "layernorm-epsilon"})
    take(kModel + "norm_epsilon", number(name));
  const auto position = text("position-embedding-type");
  if (flag("use-rotary-position-embeddings") || position == "rope")
    set(kModel + "position_embedding", "rotary");
  else if (position == "none")
    set(kModel + "position_embedding", "none");
  else if (position && position != "learned_absolute")
    leave("position-embedding-type", "legal: learned, rotary, none; learned stands");
  take(kModel + "rotary_base", number("rotary-base"));
  take(kModel + "rotary_scaling_factor", number("rotary-seq-len-interpolation-factor"));
  // Megatron's fused GELU is the tanh form.
  const std::string activation = flag("swiglu") ? "swiglu" : "gelu_tanh";
  if (activation == "swiglu" && !find("ffn-hidden-size")) {
    const int64_t width = integer("hidden-size").value_or(0) * 4 * 2 / 3 / 64 * 64;
    set(kModel + "ffn_hidden_size", Json::Value(Json::Int64(width)));
    draft_.note(fmt::format("ffn_hidden_size {}: Megatron's default with --swiglu", width));
  }
  set(kModel + "activation", activation);
  set(kMoe + "expert_activation", activation);
  if (flag("disable-bias-linear")) {
    set(kModel + "ffn_bias", false);
    set(kMoe + "expert_bias", false);
    set(kModel + "attention_bias", flag("add-qkv-bias"));
  }
  if (flag("multi-latent-attention"))
    latent_attention();
  else if (flag("qk-layernorm"))
    set(kModel + "qk_norm", true);
  if (flag("untie-embeddings-and-output-weights")) set(kModel + "tie_embeddings", false);
  take(kModel + "init_std", number("init-method-std"));
  // Megatron's defaults count where a script does not say.
  const double hidden = number("hidden-dropout").value_or(0.1);
  const double attention = number("attention-dropout").value_or(0.1);
  set(kModel + "dropout", Json::Value(hidden));
  if (!find("hidden-dropout"))
    draft_.note("dropout 0.1: Megatron's default of --hidden-dropout, which is not given");
  if (attention > 0)
    leave("attention-dropout",
          fmt::format("{}{}: attention weights are not dropped here", attention,
                      find("attention-dropout") ? "" : " by default"));
  auto vocabulary = integer("vocab-size");
  if (!vocabulary && text("vocab-file") && text("vocab-file")->find("gpt2") != std::string::npos) {
    vocabulary = 50257;
    draft_.note("vocab_size from GPT-2's 50257 tokens, which --vocab-file names");
    find("vocab-file")->used = false;
  }
  if (vocabulary) {
    const int64_t unit = integer("make-vocab-size-divisible-by").value_or(128) *
                         integer("tensor-model-parallel-size").value_or(1);
    set(kModel + "vocab_size", Json::Value(Json::Int64((*vocabulary + unit - 1) / unit * unit)));
    draft_.note(fmt::format("vocab_size {} padded to a multiple of {}, as Megatron does",
                            *vocabulary, unit));
  }
}

/// With Megatron's defaults; its norms of queries and keys are those of the latents.
void Importer::latent_attention() {
  const std::string latent = kModel + "latent_attention.";
  set(kModel + "attention", "multi_head_latent");
  set(kModel + "position_embedding", "rotary");
  take(latent + "q_lora_rank", integer("q-lora-rank"));
  const auto width = [&](const char* key, const char* argument, int64_t otherwise) {
    set(latent + key, Json::Value(Json::Int64(integer(argument).value_or(otherwise))));
  };
  width("kv_lora_rank", "kv-lora-rank", 32);
  width("qk_nope_head_dim", "qk-head-dim", 128);
  width("qk_rope_head_dim", "qk-pos-emb-head-dim", 64);
  width("v_head_dim", "v-head-dim", 128);
  if (find("kv-channels")) leave("kv-channels", "latent attention has widths of its own");
  if (!flag("qk-layernorm")) draft_.note("latents have norms here, with --qk-layernorm there");
  const double factor = number("rotary-scaling-factor").value_or(1);
  if (factor == 1) return;
  set(kModel + "rotary_scaling", "yarn");
  set(kModel + "rotary_scaling_factor", Json::Value(factor));
  take(kModel + "yarn.mscale", number("mscale"));
  take(kModel + "yarn.mscale_all_dim", number("mscale-all-dim"));
}

/// Dense layers of a pattern such as ([0]*3+[1]*58): some 0, then 1 alone; nothing for others.
std::optional<int64_t> first_dense_layers(std::string pattern) {
  std::erase_if(pattern, [](char c) { return c == '(' || c == ')' || c == ' '; });
  int64_t dense = 0;
  bool experts = false;
  for (size_t at = 0; at < pattern.size();) {
    const size_t end = std::min(pattern.find('+', at), pattern.size());
    const std::string part = pattern.substr(at, end - at);
    at = end + 1;
    const bool one = part.rfind("[1]", 0) == 0;
    const std::string times = part.size() > 3 ? part.substr(4) : "1";
    if ((!one && part.rfind("[0]", 0) != 0) || (part.size() > 3 && part[3] != '*') ||
        times.empty() || times.size() > 6 ||
        times.find_first_not_of("0123456789") != std::string::npos || (!one && experts))
      return std::nullopt;
    experts = experts || one;
    if (!one) dense += std::stoll(times);
  }
  return dense;
}

void Importer::experts() {
  const auto core = integer("num-experts"), fork = integer("moe-num-experts");
  expert_count_ = core.value_or(fork.value_or(0));
  set(kMoe + "num_experts", Json::Value(Json::Int64(expert_count_)));
  if (expert_count_ == 0) return;
  int64_t every = 1, first_dense = 0;
  if (const auto frequency = text("moe-layer-freq")) {
    if (frequency->find_first_not_of("0123456789") == std::string::npos && !frequency->empty())
      every = std::stoll(*frequency);
    else if (const auto dense = first_dense_layers(*frequency))
      take(kMoe + "first_dense_layers", dense), first_dense = *dense;
    else
      leave("moe-layer-freq",
            "legal: a number, or a pattern of 0s and then 1s; every layer stands");
    if (every > 1)
      draft_.note(
          fmt::format("moe_every_k_layers {}: layers {}, {}, ... are MoE; in Megatron 0, {}, "
                      "...",
                      every, every - 1, 2 * every - 1, every));
    set(kMoe + "moe_every_k_layers", Json::Value(Json::Int64(every)));
  }
  const double layers =
      std::floor(static_cast<double>(integer("num-layers").value_or(1) - first_dense) /
                 static_cast<double>(every));
  if (fork) return megablocks(layers);
  const int64_t k = integer("moe-router-topk").value_or(2);
  set(kMoe + "top_k", Json::Value(Json::Int64(k)));
  take(kMoe + "expert_hidden_size", integer("moe-ffn-hidden-size"));
  if (!find("moe-ffn-hidden-size")) take(kMoe + "expert_hidden_size", integer("ffn-hidden-size"));
  expert_loss(layers);
  take("routing.jitter_epsilon", number("moe-input-jitter-eps"));
  const std::string score = text("moe-router-score-function").value_or("softmax");
  if (score == "softmax" || score == "sigmoid")
    set("routing.score_function", score);
  else
    leave("moe-router-score-function", "legal: softmax, sigmoid; softmax stands");
  // A softmax over the chosen k is the softmax over all, divided by the sum of the chosen.
  const bool before = flag("moe-router-pre-softmax");
  if (k > 1 && (!before || score == "sigmoid")) set("routing.normalize_weights", Json::Value(1));
  take("routing.weight_scale", number("moe-router-topk-scaling-factor"));
  take("routing.groups", integer("moe-router-num-groups"));
  take("routing.kept_groups", integer("moe-router-group-topk"));
  const double rate = number("moe-router-bias-update-rate").value_or(1e-3);
  if (flag("moe-router-enable-expert-bias")) set(kMoe + "bias_update_rate", Json::Value(rate));
  take(kMoe + "capacity_factor", number("moe-expert-capacity-factor"));
  const std::string policy = text("moe-token-drop-policy").value_or("probs");
  if (find("moe-expert-capacity-factor"))
    set(kMoe + "drop_policy", policy == "probs" ? "probability" : "position");
  take(kMoe + "shared_expert_hidden_size", integer("moe-shared-expert-intermediate-size"));
  if (flag("moe-router-force-load-balancing")) set("routing.source", "uniform");
}

// Megatron adds a x (sum over layers) of a loss that is 1 when balanced; here it is the mean.
void Importer::expert_loss(double layers) {
  const std::string kind = text("moe-router-load-balancing-type").value_or("aux_loss");
  const double coefficient = number("moe-aux-loss-coeff").value_or(0);
  const std::map<std::string, const char*> scopes{{"aux_loss", "micro_batch"},
                                                  {"seq_aux_loss", "sequence"},
                                                  {"global_aux_loss", "global_batch"}};
  const auto scope = scopes.find(kind);
  if (scope == scopes.end()) {
    set(kMoe + "aux_loss_factor", Json::Value(0));
    if (kind != "none")
      leave("moe-router-load-balancing-type",
            "legal: aux_loss, seq_aux_loss, global_aux_loss, none; no balance loss stands");
  } else {
    set(kMoe + "aux_loss_factor", Json::Value(coefficient * layers));
    set(kMoe + "aux_loss_scope", scope->second);
    if (coefficient != 0)
      draft_.note(
          fmt::format("aux_loss_factor = {} x {} MoE layers: Megatron sums over layers, here "
                      "it is the mean",
                      coefficient, layers));
  }
  if (const auto z = number("moe-z-loss-coeff")) {
    set(kMoe + "z_loss_factor", Json::Value(*z * layers));
    draft_.note(fmt::format("z_loss_factor = {} x {} MoE layers, likewise", *z, layers));
  }
}

void Importer::megablocks(double layers) {
  set(kMoe + "top_k", Json::Value(Json::Int64(integer("moe-top-k").value_or(1))));
  // MegaBlocks' balance loss is the mean over layers already, its z-loss is not.
  set(kMoe + "aux_loss_factor", Json::Value(number("moe-loss-weight").value_or(0.1)));
  if (const auto z = number("moe-zloss-weight")) {
    set(kMoe + "z_loss_factor", Json::Value(*z * layers));
    draft_.note(
        fmt::format("z_loss_factor = {} x {} MoE layers: MegaBlocks sums over layers, here "
                    "it is the mean",
                    *z, layers));
  }
  take("routing.jitter_epsilon", number("moe-jitter-eps"));
  take("routing.normalize_weights", number("moe-normalize-expert-weights"));
  if (const auto factor = number("moe-capacity-factor"); factor && *factor > 0)
    set(kMoe + "capacity_factor", Json::Value(*factor));
  take(kMoe + "expert_hidden_size", integer("moe-hidden-size"));
  set(kMoe + "expert_bias", false);
  draft_.note("expert_bias false: MegaBlocks has one bias for all experts of a layer, left out");
  all_ranks_ = flag("moe-expert-model-parallelism");
  if (all_ranks_)
    draft_.note("expert_parallel_size: all data-parallel ranks, as MegaBlocks spreads experts");
}

void Importer::training() {
  take(kTraining + "micro_batch_size", integer("micro-batch-size"));
  const auto batch = integer("global-batch-size");
  batch_ = batch.value_or(0);
  take(kTraining + "global_batch_size", batch);
  int64_t steps = integer("train-iters").value_or(0);
  if (const auto samples = integer("train-samples"); samples && batch_ > 0)
    steps = *samples / batch_;
  if (steps > 0) set(kTraining + "steps", Json::Value(Json::Int64(steps)));
  set(kTraining + "seed", Json::Value(Json::Int64(integer("seed").value_or(1234))));
  const std::string optimizer = text("optimizer").value_or("adam");
  if (optimizer == "sgd")
    set(kTraining + "optimizer", "sgd");
  else if (optimizer != "adam")
    leave("optimizer", "legal: adam (AdamW), sgd; adamw stands");
  take(kTraining + "learning_rate", number("lr"));
  set(kTraining + "weight_decay", Json::Value(number("weight-decay").value_or(0.01)));
  set(kTraining + "beta1", Json::Value(number("adam-beta1").value_or(0.9)));
  set(kTraining + "beta2", Json::Value(number("adam-beta2").value_or(0.999)));
  take(kTraining + "adam_epsilon", number("adam-eps"));
  set(kTraining + "max_grad_norm", Json::Value(number("clip-grad").value_or(1.0)));
  schedule(steps);
  const bool fp16 = flag("fp16"), bf16 = flag("bf16");
  set(kTraining + "dtype", fp16 ? "fp16" : bf16 ? "bf16" : "fp32");
  if (fp16) loss_scale();
  recompute();
  take(kTraining + "validation_every", integer("eval-interval"));
  if (const auto iterations = integer("eval-iters"); iterations && *iterations > 0 && batch_ > 0)
    set(kTraining + "validation_sequences", Json::Value(Json::Int64(*iterations * batch_)));
  take("output.log_every", integer("log-interval"));
  if (const auto directory = text("save"); directory && !directory->empty())
    set("checkpoint.directory", *directory);
  take("checkpoint.every_steps", integer("save-interval"));
  if (flag("async-save")) set("checkpoint.async", true);
}

void Importer::recompute() {
  const auto granularity = text("recompute-granularity");
  if (flag("recompute-activations") || granularity)
    set(kTraining + "recompute", granularity.value_or("selective"));
  // One layer at a time, all of them, is what full recompute does here.
  const auto each = integer("recompute-num-layers");
  if (const auto method = text("recompute-method"); method && *method != "uniform")
    leave("recompute-method", "legal: uniform; every layer is recomputed");
  if (each && each != 1) leave("recompute-num-layers", "legal: 1; each layer keeps its own input");
  const Argument* modules = find("recompute-modules");
  if (!modules) return;
  Json::Value names(Json::arrayValue);
  for (const std::string& module : modules->values) {
    if (module == "core_attn") names.append("attention_core");
    if (module == "moe_act") names.append("expert_activation");
  }
  set(kTraining + "recompute_modules", names);
  if (names.size() < modules->values.size())
    leave("recompute-modules", "legal: core_attn, moe_act; the others are kept");
  else
    flag("recompute-modules");
}

void Importer::schedule(int64_t steps) {
  const std::string style = text("lr-decay-style").value_or("linear"),
                    prefix = kTraining + "schedule.";
  int64_t decay = integer("lr-decay-iters").value_or(steps);
  if (const auto samples = integer("lr-decay-samples"); samples && batch_ > 0)
    decay = *samples / batch_;
  int64_t warmup = integer("lr-warmup-iters").value_or(0);
  if (const auto fraction = number("lr-warmup-fraction"))
    warmup = static_cast<int64_t>(*fraction * static_cast<double>(decay));
  if (const auto samples = integer("lr-warmup-samples"); samples && batch_ > 0)
    warmup = *samples / batch_;
  const double lr = number("lr").value_or(0), lowest = number("min-lr").value_or(0);
  if (style == "cosine") {
    set(prefix + "kind", "cosine");
    set(prefix + "decay_steps", Json::Value(Json::Int64(decay)));
    if (lr > 0) set(prefix + "min_ratio", Json::Value(lowest / lr));
  } else {
    set(prefix + "kind", warmup > 0 ? "warmup" : "constant");
    if (style != "constant")
      leave("lr-decay-style", style + "; legal: cosine, constant; constant stands");
  }
  set(prefix + "warmup_steps", Json::Value(Json::Int64(warmup)));
}

void Importer::loss_scale() {
  const std::string prefix = kTraining + "loss_scaling.";
  if (const auto fixed = number("loss-scale")) {
    set(prefix + "mode", "static");
    set(prefix + "initial_scale", Json::Value(*fixed));
    return;
  }
  set(prefix + "initial_scale", Json::Value(number("initial-loss-scale").value_or(4294967296.0)));
  set(prefix + "minimum_scale", Json::Value(number("min-loss-scale").value_or(1.0)));
  set(prefix + "growth_interval_steps",
      Json::Value(Json::Int64(integer("loss-scale-window").value_or(1000))));
  set(prefix + "hysteresis", Json::Value(Json::Int64(integer("hysteresis").value_or(2))));
}

void Importer::data() {
  if (flag("mock-data")) set("data.format", "synthetic");
  Argument* path = find("data-path");
  if (!path) path = find("train-data-path");
  if (path) {
    path->used = true;
    set("data.format", "megatron");
    Json::Value files(Json::arrayValue);
    std::map<std::string, int> weights;
    const bool weighted = path->values.size() > 1;
    for (size_t i = 0; i < path->values.size(); ++i) {
      if (weighted && i % 2 == 0) {
        ++weights[path->values[i]];
      } else {
        files.append(path->values[i]);
      }
    }
    set("data.files", files);
    if (weights.size() > 1)
      leave(*path, "weights of data sets differ: they follow each other here");
  }
  if (const auto split = text("split")) {
    double parts[3] = {1, 0, 0};
    std::sscanf(split->c_str(), "%lf,%lf,%lf", &parts[0], &parts[1], &parts[2]);
    const double sum = parts[0] + parts[1] + parts[2];
    if (sum > 0) set("data.validation_fraction", Json::Value(parts[1] / sum));
    if (parts[2] > 0) draft_.note("data.validation_fraction: of --split; there is no test part");
  }
}

}  // namespace

void import_megatron(const std::string& text, const std::string& name, ScenarioDraft* draft) {
  MegatronArguments arguments(std::filesystem::path(name).filename().string(), text, draft);
  Importer(arguments, *draft).run();
}

}  // namespace moetwin
