#include "analysis/validate/training_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/validate/known_models.h"
#include "analysis/validate/row_machine.h"
#include "core/base/error.h"
#include "core/record/json_text.h"
#include "core/scenario/model_size.h"
#include "core/scenario/read.h"

namespace moetwin {
namespace {

/// What is missing or has no words, as a reason.
struct Refused {
  std::string reason;
};

void assume(TrainingRow& out, const std::string& what) {
  out.caveat += (out.caveat.empty() ? "" : "; ") + what;
}

bool any_of(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const char* w) { return text.find(w) != std::string::npos; });
}

/// Layers from the number of parameters, 12 h^2 a layer beside the table; heads of at least 128
/// that divide by TP. BLOOM's tables leave them out where a sweep varies something else.
void infer_shape(const PublishedRow& row, TrainingRow& out) {
  ModelConfig& m = out.scenario.model_config;
  const int64_t h = m.hidden_size, tp = std::max<int64_t>(1, row.whole("TP", 1));
  const auto billions = row.number("params_B");
  if (h == 0 || row.whole("experts", 0) > 0 || !row.mentions("model", "GPT")) return;
  if (m.vocab_size == 0 && row.mentions("series", "BLOOM")) m.vocab_size = 250880;
  if (m.num_layers == 0 && billions) {
    const auto width = static_cast<double>(h);
    m.num_layers = std::llround((*billions * 1e9 - static_cast<double>(m.vocab_size) * width) /
                                (12 * width * width));
    assume(out, fmt::format("layers from the parameters: {}", m.num_layers));
  }
  for (int64_t size = 128; m.num_attention_heads == 0 && size <= 256; ++size)
    if (h % size == 0 && (h / size) % tp == 0) {
      m.num_attention_heads = h / size;
      assume(out, fmt::format("heads not stated: {}", m.num_attention_heads));
    }
}

/// Widths of DeepSeek-V3 (its config.json), of which scaled-down versions keep them.
void read_latent_attention(ModelConfig& m) {
  m.attention = "multi_head_latent";
  m.latent_attention.q_lora_rank = 1536;
  m.num_key_value_heads = 0;
  m.head_dim = 0;
}

/// Families of models by name: what a row does not have columns for.
void read_model(const PublishedRow& row, TrainingRow& out) {
  ModelConfig& m = out.scenario.model_config;
  const std::string name = lower_case(row.text("model"));
  if (row.mentions("notes", "FFN misconfigured"))
    throw Refused{"the FFN width is not the one that ran (source's remark)"};
  if (any_of(name, {"bert", "t5", "switch"}))
    throw Refused{"encoder or encoder-decoder: the model trains decoders"};
  if (name.find("deepseekv4") != std::string::npos)
    throw Refused{"sparse attention: not in the model"};
  if (any_of(name, {"moe layer", "half layer", "dmoe layer", "layer op"}))
    throw Refused{"a layer alone: not a training step"};
  if (any_of(name, {"gpt-oss", "gpt_oss", "gpt oss"}))
    throw Refused{"attention with sinks and windows: not in the model"};
  const KnownModel* known = known_model(name);
  const auto size = [&](const char* column, int64_t otherwise) {
    return row.whole(column, known ? otherwise : 0);
  };
  m.hidden_size = size("hidden", known ? known->hidden : 0);
  m.num_layers = size("layers", known ? known->layers : 0);
  m.num_attention_heads = size("heads", known ? known->heads : 0);
  m.num_key_value_heads = size("kv_heads", known ? known->kv_heads : 0);
  m.ffn_hidden_size = size("ffn", known ? known->ffn : 0);
  m.vocab_size = size("vocab", known ? known->vocab : 0);
  m.sequence_length = row.whole("seq", 0);
  infer_shape(row, out);
  if (m.hidden_size * m.num_layers * m.num_attention_heads * m.sequence_length == 0)
    throw Refused{"layers, hidden, heads or sequence length not stated"};
  if (m.vocab_size == 0) {
    m.vocab_size = 51200;
    assume(out, "vocabulary not stated: GPT-2's, 51200");
  }
  if (m.hidden_size % m.num_attention_heads != 0)
    m.head_dim = (m.hidden_size + m.num_attention_heads - 1) / m.num_attention_heads;
  if (name.find("qwen3") != std::string::npos) m.head_dim = 128, m.qk_norm = true;
  const bool llama =
      any_of(name, {"llama", "qwen", "mixtral", "mistral", "deepseek", "internlm", "olmo", "smol"});
  const bool mpt = name.find("mpt") != std::string::npos;
  if (llama) {
    m.normalization = "rmsnorm";
    m.position_embedding = "rotary";
    m.activation = "swiglu";
    m.attention_bias = m.ffn_bias = m.tie_embeddings = false;
    // nanotron ties the tables of its smaller models.
    m.tie_embeddings = row.mentions("framework", "nanotron") && m.ffn_hidden_size < 10000;
    if (name.find("deepseek") != std::string::npos) read_latent_attention(m);
    if (m.ffn_hidden_size == 0 && name.find("internlm") != std::string::npos)
      m.ffn_hidden_size = 11008;
    if (m.ffn_hidden_size == 0 && row.whole("moe_layers", 0) < m.num_layers) {
      m.ffn_hidden_size = (8 * m.hidden_size / 3 + 255) / 256 * 256;
      assume(out, "FFN width not stated: 8/3 of hidden");
    }
  } else {
    m.position_embedding = mpt ? "none" : "learned";  // ALiBi costs nothing beside attention
    m.attention_bias = m.ffn_bias = !mpt;
    m.activation = "gelu_tanh";
  }
  // Tables are padded to a multiple of 128 x TP, as Megatron does.
  const int64_t multiple = 128 * std::max<int64_t>(1, row.whole("TP", 1));
  m.vocab_size = (m.vocab_size + multiple - 1) / multiple * multiple;
}

/// Megatron-LM of the years of these GPUs is Megatron-Core.
bool since_hopper(const PublishedRow& row) {
  const std::string model = gpu_model(row);
  return model != "A100" && model != "V100";
}

void read_experts(const PublishedRow& row, TrainingRow& out) {
  ModelConfig& m = out.scenario.model_config;
  MoeLayerConfig& e = m.moe_layer_config;
  e.num_experts = row.whole("experts", 0);
  if (e.num_experts == 0) return;
  e.top_k = std::max<int64_t>(1, row.whole("topk", 1));
  e.expert_hidden_size = row.whole("moe_ffn", 0);
  if (e.expert_hidden_size == 0) e.expert_hidden_size = m.ffn_width();
  e.expert_activation = m.activation == "swiglu" ? "swiglu" : "gelu_tanh";
  e.expert_bias = m.ffn_bias;
  const int64_t shared = row.whole("shared_experts", 0);
  e.shared_expert_hidden_size = shared * e.expert_hidden_size;
  const int64_t moe_layers = row.whole("moe_layers", m.num_layers);
  if (moe_layers > 0 && moe_layers < m.num_layers) {
    if (m.num_layers % moe_layers == 0) {
      e.moe_every_k_layers = m.num_layers / moe_layers;
    } else {
      e.first_dense_layers = m.num_layers - moe_layers;
    }
  }
  if (!row.mentions("capacity_factor", "dropless"))
    if (const auto factor = row.number("capacity_factor"); factor && *factor > 0) {
      // Tutel's buffers have room for the capacity, and all of it is sent and multiplied.
      if (row.mentions("framework", "Tutel"))
        out.padded_choices = *factor * static_cast<double>(e.top_k);
      else
        e.capacity_factor = *factor;
    }
  const std::string dispatcher = lower_case(row.text("dispatcher"));
  if (any_of(dispatcher, {"deepep", "hybridep", "uccl-ep"})) {
    out.scenario.cluster.collective_algorithm = "deduplicated";
  } else if (dispatcher.empty() && row.mentions("framework", "bridge") && since_hopper(row)) {
    out.scenario.cluster.collective_algorithm = "deduplicated";
    assume(out, "dispatcher not stated: DeepEP or HybridEP, as in the recipes of Megatron-Bridge");
  }
  e.aux_loss_factor = 0.01;
  RoutingConfig& routing = out.scenario.routing;
  routing.source = "learned";
  routing.without_numerics = "uniform";
  // DeepSeek-V3's config.json: n_group, topk_group.
  if (m.latent() && e.num_experts == 256) routing.groups = 8, routing.kept_groups = 4;
  // Of a router left to itself: RT-MARIN7668-003, most rows of an EP rank over the mean.
  constexpr double kLearnedRankLoad = 1.338;
  if (const auto ranks = row.whole("EP", 1); row.mentions("routing", "learned") && ranks > 1) {
    routing.without_numerics = "W2";
    routing.workload.hot_fraction = kLearnedRankLoad / static_cast<double>(ranks);
    assume(out, "learned router: an EP rank has 1.338 times the mean");
  }
}

/// Whose kernels: an older Megatron's, Megatron-Core's, whose fused chains also stand for those of
/// a compiler (torch.compile), or PyTorch's op by op.
const char* kernels_of(const PublishedRow& row) {
  const std::string framework = lower_case(row.text("framework"));
  const bool megatron = framework.find("megatron") != std::string::npos;
  if (any_of(framework,
             {"megatron-core", "megatron core", "bridge", "nemo 2", "megascale", "mcore"}) ||
      framework == "nemo")
    return "megatron-core";
  if (megatron && since_hopper(row) && !any_of(framework, {"deepspeed", "accelerate"}))
    return "megatron-core";
  // Galvatron has fused kernels too, and no overlap of tensor parallelism.
  if (any_of(framework, {"compile", "galvatron"}) || row.mentions("notes", "compile"))
    return "torch-compile";
  if (any_of(framework,
             // InternEvo casts the residual to fp32 before each norm, and runs norms again in the
             // backward.
             {"internevo", "fsdp", "titan", "llm-foundry", "litgpt", "lightning", "torch",
              "transformers", "open_lm", "nanotron", "picotron", "colossal", "flash-attention",
              "zero-3"}))
    return "torch-fsdp";
  // vTrain, Korthikanti et al. and MegaScale measured later versions than BLOOM's and those before.
  return any_of(row.series(), {"VTRAIN", "KORTH", "MEGASCALE"}) ? "megatron-2022" : "megatron-2021";
}

/// The default of llm-foundry's scripts/train/benchmarking/submit_benchmarks.py is the Triton
/// kernel in the commits that brought its tables (May and October 2023); the table of 128 GPUs and
/// more came with FlashAttention-2 (January 2024).
const char* attention_of_llm_foundry(const PublishedRow& row) {
  return since_hopper(row) && row.whole("n_gpus", 0) >= 128 ? "flash2" : "flash-triton";
}

void read_framework(const PublishedRow& row, TrainingRow& out) {
  Scenario& s = out.scenario;
  const std::string framework = lower_case(row.text("framework"));
  const std::string notes = lower_case(row.text("notes"));
  s.cluster.kernels = kernels_of(row);
  // Galvatron profiles Megatron's attention with score matrices.
  if (framework.find("galvatron") != std::string::npos) s.cluster.attention = "fused-softmax";
  if (any_of(notes, {"eager attention", "no flash"}))
    s.cluster.attention = s.cluster.kernels.find("megatron-20") == 0 ? "fused-softmax" : "unfused";
  else if (framework.find("llm-foundry") != std::string::npos)
    s.cluster.attention = attention_of_llm_foundry(row);
  else if (any_of(notes, {"flashattention-2", "flashattention 2"}))
    s.cluster.attention = "flash2";
  else if (notes.find("flashattention") != std::string::npos)
    s.cluster.attention = "flash";
  if (any_of(framework, {"zero++", "ulysses", "bmtrain", "thunder", "gemini"}))
    throw Refused{"framework " + row.text("framework") + ": its communication is not modelled"};
  if (any_of(notes, {"async tp: asynctp", "async tp;"}))
    throw Refused{"asynchronous tensor parallel: products cut beside their communication"};
  if (notes.find("lora") != std::string::npos) throw Refused{"LoRA: most weights are not trained"};
  if (framework.find("megatron-deepspeed") != std::string::npos) {
    s.cluster.blocking_wait = true;
    // DT-VTRAIN-SINGLE, all rows, with the passes waiting: of 0, 0.7 and 2.35 ms that with the
    // least errors and most pairs in order.
    s.cluster.stage_pass_seconds = 0.7e-3;
  }
  // GPT of Megatron drops out hidden states and attention (0.1); others of these rows do not.
  if (s.cluster.kernels.find("megatron-20") == 0) s.model_config.dropout = 0.1;
}

void read_precision(const PublishedRow& row, TrainingRow& out) {
  const std::string precision = lower_case(row.text("precision"));
  TrainingConfig& t = out.scenario.training_config;
  const bool fp8 = any_of(precision, {"fp8", "float8", "mxfp8"});
  if (any_of(precision, {"fp4"}) || precision.find("lora") != std::string::npos)
    throw Refused{"precision " + row.text("precision") + ": not one of fp32, bf16, fp16"};
  if (precision.find("tf32") != std::string::npos) throw Refused{"TF32 products"};
  if (precision.find("fp16") == 0) {
    t.dtype = "fp16";
  } else if (precision.find("fp32") == 0) {
    t.dtype = "fp32";
  } else {
    t.dtype = "bf16";
    out.scenario.cluster.fp8_products = fp8;
    if (precision.empty()) assume(out, "precision not stated: bf16");
  }
  // PyTorch's bf16 mixed precision reduces in bf16 where llm-foundry's PURE or torchtitan's default
  // (fp32) do not say otherwise.
  if (row.mentions("notes", "mode PURE"))
    out.scenario.distributed_config.fsdp.mixed_precision.reduce_dtype = "bf16";
}

void read_recompute(const PublishedRow& row, TrainingRow& out) {
  TrainingConfig& t = out.scenario.training_config;
  std::string text = lower_case(row.text("act_ckpt"));
  // A rate of factor 4 counts a second forward.
  if (text.empty() && row.mentions("tflops_def", "hardware")) {
    text = "full";
    assume(out, "recompute not stated: full, which its rate counts");
  }
  // Its author says so in Megatron-Bridge issue 949, of the same layout a day before.
  if (row.mentions("series", "MT-BRIDGE947")) {
    text = "full";
    assume(out, "recompute full, as its author's issue 949 has it");
  }
  if (text.find("shipped configs") != std::string::npos && row.whole("n_gpus", 0) <= 8) {
    // The collector inferred this column from configurations of other runs. Between rows that
    // differ in layers only, a layer takes what forward and backward take without a second forward.
    assume(out, "recompute is inferred in the table; times of a layer say none");
    t.recompute = "none";
    return;
  }
  if (row.mentions("framework", "Galvatron")) {  // "layout 1_1_8_c_sp": c is for checkpoint
    t.recompute = row.mentions("sharding", "_c") ? "full" : "none";
    return;
  }
  if (text.empty() || any_of(text, {"false", "none", "0 layers"}) || text == "sequence parallel")
    t.recompute = "none";
  else if (text.find("selective") != std::string::npos)
    t.recompute = "selective";
  else
    t.recompute = "full";
  const bool titan = row.mentions("framework", "torchtitan");
  // torchtitan's configurations of 8B, where a row does not say.
  if (titan && text.empty()) t.recompute = "selective";
  if (t.recompute == "selective") {
    t.recompute_modules = {titan ? "alternate_products" : "attention_core"};
    if (titan && text.empty()) assume(out, "recompute not stated: by op, torchtitan's default");
  }
  // Megatron-Core's recompute-modules.
  if (text == "norm, act" || text.find("norm, act,") != std::string::npos) {
    t.recompute = "selective";
    t.recompute_modules = {"expert_activation"};
  } else if (any_of(text, {"(layernorm, moe)"})) {
    t.recompute = "full";
    assume(out, "recompute of norms and experts taken as full");
  }
  if (text.empty() && row.has("micro_batch") == false) assume(out, "recompute not stated: none");
}

void read_sharding(const PublishedRow& row, TrainingRow& out) {
  DistributedConfig& d = out.scenario.distributed_config;
  const std::string text =
      lower_case(row.text("sharding")) + " " + lower_case(row.text("framework"));
  if (any_of(text, {"hsdp", "hybrid"}))
    d.fsdp.sharding_strategy = "HYBRID_SHARD";
  else if (any_of(text, {"shard_grad_op", "zero-2", "zero2"}))
    d.zero_stage = 2;
  else if (any_of(text, {"zero-1", "zero1", "distributed"}))
    d.zero_stage = 1;
  else if (any_of(text, {"fsdp", "full_shard", "zero-3", "full shard", "galvatron"}))
    d.zero_stage = 3;
  // The recipes of Megatron-Core, NeMo and Megatron-Bridge have the distributed optimizer.
  else if (row.text("sharding").empty() && out.scenario.cluster.kernels == "megatron-core")
    d.zero_stage = 1;
  // DeepSpeed's ZeRO-3 of 2021 gathers each parameter when it is asked for.
  if (d.zero_stage == 3 && text.find("deepspeed") != std::string::npos) {
    d.fsdp.forward_prefetch = false;
    d.fsdp.backward_prefetch = "none";
  }
}

/// Chunks a stage where a table has no column for them: Korthikanti et al. 2022 interleave their
/// models of 175 and 530 billion parameters three times. Of a schedule that is only called
/// interleaved, as few as the layers allow; so too of Megatron-LM's own table of H100, whose README
/// has pipeline communication overlapped, which Megatron-LM does in that schedule alone. NeMo's
/// table of fine-tuning lacks the column that its table of pretraining, on the same page, has:
/// there a chunk has one layer in four of five rows.
int64_t interleaving_of(const PublishedRow& row, int64_t layers, int64_t stages) {
  if (row.series() == "DT-NEMO2407-FT") return layers / stages;
  if (row.mentions("series", "ME-KORTH") && any_of(row.text("model"), {"175B", "530B"})) return 3;
  if (!row.mentions("notes", "interleaved schedule") && row.series() != "DT-MLM-H100") return 1;
  for (int64_t chunks = 2; chunks * stages <= layers; ++chunks)
    if (layers % (chunks * stages) == 0) return chunks;
  return 1;
}

void read_layout(const PublishedRow& row, TrainingRow& out) {
  DistributedConfig& d = out.scenario.distributed_config;
  ModelConfig& m = out.scenario.model_config;
  if (m.moe_layer_config.num_experts > 0 && row.whole("n_gpus", 0) > 1 && !row.has("TP") &&
      !row.has("PP") && !row.has("EP"))
    throw Refused{"TP, PP and EP not stated"};
  if (row.mentions("framework", "ColossalAI"))
    throw Refused{"micro-batch not stated: that of a data-parallel group is"};
  d.world_size = row.whole("n_gpus", 0);
  if (d.world_size == 0) throw Refused{"number of GPUs not stated"};
  d.tensor_parallel_size = std::max<int64_t>(1, row.whole("TP", 1));
  d.pipeline_parallel_size = std::max<int64_t>(1, row.whole("PP", 1));
  d.expert_parallel_size = std::max<int64_t>(1, row.whole("EP", 1));
  const int64_t model_ranks = d.tensor_parallel_size * d.pipeline_parallel_size;
  if (d.world_size % model_ranks != 0)
    throw Refused{fmt::format("TP x PP does not divide the number of GPUs")};
  const int64_t dense_dp = d.world_size / model_ranks;
  d.context_parallel_size = std::max<int64_t>(1, row.whole("CP", 1));
  if (dense_dp % d.context_parallel_size != 0) throw Refused{"CP does not divide DP"};
  // torchtitan's context_parallel_rotate_method; Megatron-Core's cp_comm_type is p2p.
  if (row.mentions("framework", "torchtitan")) d.context_parallel_exchange = "all_gather";
  const int64_t etp = row.whole("ETP", 0);
  if (m.moe_layer_config.num_experts > 0 && (etp > 0 || d.tensor_parallel_size > 1)) {
    // Megatron-Core folds: EP x ETP ranks out of DP x TP.
    d.expert_tensor_parallel_size = etp > 0 ? etp : 1;
    d.parallel_folding = true;
    d.dense_data_parallel_size = dense_dp / d.context_parallel_size;
    const int64_t per_copy =
        d.expert_parallel_size * d.expert_tensor_parallel_size * d.pipeline_parallel_size;
    if (d.world_size % per_copy != 0) throw Refused{"EP x ETP x PP does not divide the GPUs"};
    d.data_parallel_size = d.world_size / per_copy;
  } else {
    if (dense_dp % d.expert_parallel_size != 0) throw Refused{"EP does not divide DP"};
    d.data_parallel_size = dense_dp / d.expert_parallel_size;
  }
  d.sequence_parallel =
      d.tensor_parallel_size > 1 &&
      (out.scenario.cluster.kernels.find("megatron-20") == std::string::npos ||
       row.mentions("act_ckpt", "sequence parallel") || row.mentions("framework", "sequence par"));
  const int64_t chunks = std::max<int64_t>(
      1, row.whole("VP", interleaving_of(row, m.num_layers, d.pipeline_parallel_size)));
  if (chunks > 1 && d.pipeline_parallel_size > 1) {
    d.pipeline_schedule = "interleaved_1f1b";
    d.virtual_pipeline_size = chunks;
  }
  // Layers that do not divide: the last stages have one fewer.
  const int64_t stages = d.pipeline_parallel_size * d.virtual_pipeline_size;
  if (m.num_layers % stages != 0) {
    const int64_t more = m.num_layers % stages;
    for (int64_t i = 0; i < stages; ++i)
      d.layers_per_stage.push_back(m.num_layers / stages + (i < more ? 1 : 0));
    assume(out, "layers do not divide by the stages: first stages have one more");
  }
}

void read_batch(const PublishedRow& row, TrainingRow& out) {
  Scenario& s = out.scenario;
  TrainingConfig& t = s.training_config;
  const DistributedConfig& d = s.distributed_config;
  const int64_t dp =
      d.world_size / (d.tensor_parallel_size * d.pipeline_parallel_size * d.context_parallel_size);
  t.micro_batch_size = row.whole("micro_batch", 0);
  int64_t batch = row.whole("global_batch", 0);
  const int64_t accumulation = row.whole("grad_accum", 0);
  if (batch == 0 && row.has("global_batch_tokens"))
    batch = row.whole("global_batch_tokens", 0) / s.model_config.sequence_length;
  if (t.micro_batch_size == 0 && batch > 0 && accumulation > 0)
    t.micro_batch_size = batch / (accumulation * dp);
  // Galvatron's profiler runs its batch at once, with stages too.
  if ((row.mentions("framework", "Galvatron") || row.mentions("notes", "1 microbatch")) &&
      batch % dp == 0)
    t.micro_batch_size = batch / dp;
  if (t.micro_batch_size == 0 && batch > 0 && batch % dp == 0 && batch / dp <= 4 &&
      d.pipeline_parallel_size == 1) {
    t.micro_batch_size = batch / dp;
    assume(out, "micro-batch not stated: no accumulation");
  }
  if (t.micro_batch_size == 0 && d.pipeline_parallel_size > 1) {
    t.micro_batch_size = 1;
    assume(out, "micro-batch not stated: 1");
  }
  if (t.micro_batch_size == 0 && (batch > 0 || row.mentions("notes", "tokens per batch") ||
                                  row.mentions("notes", "FlashAttention"))) {
    t.micro_batch_size = std::max<int64_t>(1, 16384 / s.model_config.sequence_length);
    assume(out, "micro-batch not stated: 16384 tokens");
    if (batch == 0)
      batch = std::max(t.micro_batch_size * dp, 524288 / s.model_config.sequence_length);
  }
  if (t.micro_batch_size == 0) throw Refused{"micro-batch not stated"};
  if (batch == 0) {
    const int64_t micro_batches = accumulation > 0               ? accumulation
                                  : d.pipeline_parallel_size > 1 ? 0
                                                                 : 1;
    if (micro_batches == 0) throw Refused{"global batch not stated"};
    batch = t.micro_batch_size * dp * micro_batches;
    if (accumulation == 0) assume(out, "global batch not stated: no accumulation");
  }
  const int64_t unit = t.micro_batch_size * dp;
  if (batch % unit != 0) {
    // As the frameworks do: whole micro-batches, the last ones dropped.
    const int64_t whole = std::max<int64_t>(1, (batch + unit / 2) / unit) * unit;
    if (std::abs(static_cast<double>(whole - batch)) > 0.02 * static_cast<double>(batch))
      throw Refused{"global batch is no multiple of micro-batch x DP"};
    assume(out, fmt::format("global batch {} taken as {}", batch, whole));
    batch = whole;
  }
  t.global_batch_size = batch;
}

/// Runs the scenario through the rules of scenario files.
void check(TrainingRow& out) {
  try {
    Json::Value json = scenario_to_json(out.scenario);
    Json::Value& distributed = json["distributed_config"];
    if (out.scenario.distributed_config.fsdp.sharding_strategy != "auto")
      distributed.removeMember("zero_stage");
    out.scenario = parse_scenario(json_text(json), "row");
  } catch (const Error& error) {
    std::string message = error.what();
    message = message.substr(0, message.find('\n'));
    throw Refused{"the scenario is not legal: " + message};
  }
}

}  // namespace

TrainingRow read_training_row(const PublishedRow& row) {
  TrainingRow out;
  Scenario& s = out.scenario;
  const RowMachine machine = machine_of(row, false);
  if (machine.profile.empty()) {
    out.reason = machine.reason;
    out.other_hardware = machine.other_hardware;
    return out;
  }
  s.name = "row";
  s.cluster.profile = machine.profile;
  s.memory.on_exceed = "report";
  s.training_config.numerics = "none";
  s.training_config.steps = 1;  // every step of a run without numerics is like the first
  s.training_config.warmup_steps_excluded = 0;
  s.output.log_every = 1000;
  if (lower_case(row.text("interconnect")).find("not stated") != std::string::npos)
    assume(out, "fabric not stated: the one of a DGX");
  try {
    read_model(row, out);
    read_framework(row, out);
    read_precision(row, out);
    read_experts(row, out);
    read_recompute(row, out);
    read_sharding(row, out);
    read_layout(row, out);
    read_batch(row, out);
    check(out);
  } catch (const Refused& refused) {
    out.reason = refused.reason;
  }
  return out;
}

double megatron_flop(const Scenario& s, double factor) {
  const ModelConfig& m = s.model_config;
  const auto batch = static_cast<double>(s.training_config.global_batch_size);
  const auto seq = static_cast<double>(m.sequence_length), l = static_cast<double>(m.num_layers);
  const auto h = static_cast<double>(m.hidden_size), v = static_cast<double>(m.vocab_size);
  return factor * 24 * batch * seq * l * h * h *
         (1 + seq / (6 * h) + v * 6 / (24 * factor * l * h));
}

double iteration_seconds(const PublishedRow& row, const Scenario& s) {
  const auto batch = static_cast<double>(s.training_config.global_batch_size);
  const double tokens = batch * static_cast<double>(s.model_config.sequence_length);
  const auto gpus = static_cast<double>(s.distributed_config.world_size);
  if (const auto seconds = row.number("iter_time_s")) return *seconds;
  if (const auto rate = row.number("tokens_per_s")) return tokens / *rate;
  if (const auto rate = row.number("tokens_per_s_per_gpu")) return tokens / (*rate * gpus);
  if (const auto rate = row.number("samples_per_s")) return batch / *rate;
  if (const auto rate = row.number("tflops_per_gpu")) {
    const bool hardware = row.mentions("tflops_def", "hardware");
    const double flop =
        s.model_config.moe_layer_config.num_experts > 0 || s.model_config.activation == "swiglu"
            ? training_flop_per_step(s)
            : megatron_flop(s, hardware ? 4 : 3);
    return flop / (*rate * 1e12 * gpus);
  }
  return 0;
}

}  // namespace moetwin
