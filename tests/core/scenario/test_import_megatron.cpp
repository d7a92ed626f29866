// Megatron's arguments as a scenario: launch scripts as users have them, coefficients converted by
// the definitions of both sides, and a line for everything that has no counterpart.

#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "core/scenario/import_megatron.h"
#include "core/scenario/read.h"
#include "core/scenario/shell_words.h"

using namespace moetwin;
using Catch::Matchers::Contains;

namespace {

ImportedScenario imported(const std::string& text) {
  ScenarioDraft draft;
  import_megatron(text, "run.sh", &draft);
  return draft.finish("run.sh");
}

Scenario scenario(const ImportedScenario& result) {
  INFO(result.problems);
  REQUIRE(result.problems.empty());
  return parse_scenario(result.text, "run.json");
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

/// A training in the manner of seed 004's 125M dMoE script: variables in quotes, a default that an
/// argument could replace, and what is launched with them.
const char* const kDmoe = R"(#!/bin/bash
OUT=$1
STEPS=20000
if [ -n "${2}" ]; then
    STEPS=$2;
fi
EXPERTS=64
# Mixture
MOE="\
--moe-num-experts=${EXPERTS} \
--moe-loss-weight=0.1 \
--moe-top-k=1"
LAUNCH="--nproc_per_node 8 --nnodes 1 --node_rank 0"
MODEL="\
--num-layers 12 \
--hidden-size 768 \
--num-attention-heads 12 \
--seq-length 1024 \
--max-position-embeddings 1024"
TRAIN="\
--micro-batch-size 64 \
--global-batch-size 512 \
--train-iters ${STEPS} \
--lr-decay-iters ${STEPS} \
--lr 0.0006 \
--min-lr 0.00006 \
--lr-decay-style cosine \
--lr-warmup-fraction 0.01 \
--clip-grad 1.0 \
--init-method-std 0.01 \
--optimizer adafactor"
DATA="\
--data-path 1.0 ../a_text 1.0 ../b_text \
--vocab-file ../gpt2-vocab.json \
--make-vocab-size-divisible-by 1024 \
--split 969,30,1"
COMPUTE="--fp16 --DDP-impl local --moe-expert-model-parallelism --use-flash-attn"
SAVE="--save-interval 2000 --save ./${OUT}ckpt"
EVAL="--eval-iters 100 --log-interval 100 --eval-interval 1000"

python -m torch.distributed.launch ${LAUNCH} \
       megatron/pretrain_gpt.py \
       ${MOE} ${MODEL} ${TRAIN} ${DATA} ${COMPUTE} ${SAVE} ${EVAL} |& tee ./${OUT}/train.log
)";

}  // namespace

TEST_CASE("seed 004's script: experts over all ranks, MegaBlocks' coefficients, fp16") {
  const ImportedScenario result = imported(kDmoe);
  const Scenario s = scenario(result);
  const ModelConfig& m = s.model_config;
  CHECK(m.num_layers == 12);
  CHECK(m.hidden_size == 768);
  CHECK(m.num_attention_heads == 12);
  CHECK(m.sequence_length == 1024);
  CHECK(m.vocab_size == 51200);  // 50257 up to a multiple of 1024
  CHECK(m.init_std == 0.01);
  CHECK(m.dropout == 0.1);  // Megatron's default
  CHECK(m.activation == "gelu_tanh");
  const MoeLayerConfig& moe = m.moe_layer_config;
  CHECK(moe.num_experts == 64);
  CHECK(moe.top_k == 1);
  CHECK(moe.aux_loss_factor == 0.1);  // a mean over layers on both sides
  CHECK_FALSE(moe.capacity_factor);
  CHECK_FALSE(moe.expert_bias);
  const DistributedConfig& d = s.distributed_config;
  CHECK(d.world_size == 8);
  CHECK(d.expert_parallel_size == 8);
  CHECK(d.data_parallel_size == 1);
  const TrainingConfig& t = s.training_config;
  CHECK(t.steps == 20000);
  CHECK(t.global_batch_size == 512);
  CHECK(t.micro_batch_size == 64);
  CHECK(t.dtype == "fp16");
  CHECK(t.loss_scaling.initial_scale == 4294967296.0);
  CHECK(t.loss_scaling.growth_interval_steps == 1000);
  CHECK(t.loss_scaling.hysteresis == 2);
  CHECK(t.schedule.kind == "cosine");
  CHECK(t.schedule.warmup_steps == 200);
  CHECK(t.schedule.min_ratio == Approx(0.1));
  CHECK(t.beta2 == 0.999);
  CHECK(t.validation_sequences == 51200);
  CHECK(s.data.format == "megatron");
  CHECK(s.data.files == std::vector<std::string>{"../a_text", "../b_text"});
  CHECK(s.data.validation_fraction == Approx(0.03));
  CHECK(s.checkpoint.every_steps == 2000);
  CHECK(s.checkpoint.directory == "./ckpt");
  const std::string left = joined(result.left_out);
  CHECK_THAT(left, Contains("run.sh:4: if [ -n \"${2}\" ]") && Contains("run.sh:5: STEPS=$2"));
  CHECK_THAT(left, Contains("--optimizer adafactor (legal: adam (AdamW), sgd; adamw stands)"));
  CHECK_THAT(left, Contains("--use-flash-attn") && Contains("--DDP-impl local") &&
                       Contains("--node_rank 0") && Contains("--vocab-file ../gpt2-vocab.json"));
  CHECK_THAT(left, Contains("attention-dropout (0.1 by default"));
}

TEST_CASE("Megatron-Core's latent attention, and dense layers before those with experts") {
  const ImportedScenario result = imported(R"sh(
ARGS=(
  --num-layers 14 --hidden-size 1024 --num-attention-heads 16 --kv-channels 128 --seq-length 512
  --vocab-size 1000 --micro-batch-size 1 --global-batch-size 8 --mock-data
  --multi-latent-attention --qk-layernorm --q-lora-rank 96 --kv-lora-rank 64 --qk-head-dim 48
  --qk-pos-emb-head-dim 16 --rotary-scaling-factor 40 --mscale 0.707 --mscale-all-dim 0.707
  --normalization RMSNorm --disable-bias-linear --swiglu --num-experts 8 --moe-router-topk 2
  --moe-layer-freq "([0]*2+[1]*12)" --moe-aux-loss-coeff 1e-2 --expert-model-parallel-size 8
)
torchrun --nproc-per-node 8 pretrain_gpt.py "${ARGS[@]}"
)sh");
  const Scenario s = scenario(result);
  const ModelConfig& m = s.model_config;
  CHECK(m.attention == "multi_head_latent");
  CHECK(m.position_embedding == "rotary");
  CHECK(m.latent_attention.q_lora_rank == 96);
  CHECK(m.latent_attention.kv_lora_rank == 64);
  CHECK(m.latent_attention.qk_nope_head_dim == 48);
  CHECK(m.latent_attention.qk_rope_head_dim == 16);
  CHECK(m.latent_attention.v_head_dim == 128);  // Megatron's default
  CHECK_FALSE(m.qk_norm);
  CHECK(m.rotary_scaling == "yarn");
  CHECK(m.rotary_scaling_factor == 40);
  CHECK(m.yarn.mscale_all_dim == 0.707);
  CHECK(m.moe_layer_config.first_dense_layers == 2);
  CHECK(m.num_moe_layers() == 12);
  CHECK(m.moe_layer_config.aux_loss_factor == Approx(0.12));
}

TEST_CASE("Megatron-Core's arguments: losses are sums over layers there, means here") {
  const ImportedScenario result = imported(R"(
ARGS=(
  --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048
  --group-query-attention --num-query-groups 4 --swiglu --ffn-hidden-size 2816
  --normalization RMSNorm --position-embedding-type rope --rotary-base 1000000
  --disable-bias-linear --untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0
  --vocab-size 1000
  --num-experts 32 --moe-router-topk 4 --moe-layer-freq 2 --moe-ffn-hidden-size 512
  --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-2 --moe-z-loss-coeff 1e-3
  --moe-router-score-function sigmoid --moe-router-topk-scaling-factor 2.5
  --moe-router-enable-expert-bias --moe-expert-capacity-factor 1.25 --moe-token-drop-policy probs
  --moe-grouped-gemm --moe-shared-expert-intermediate-size 256
  --tensor-model-parallel-size 2 --expert-model-parallel-size 8 --expert-tensor-parallel-size 1
  --pipeline-model-parallel-size 2 --use-distributed-optimizer --overlap-grad-reduce
  --micro-batch-size 1 --global-batch-size 64 --train-samples 6400 --lr 1e-4 --bf16
  --lr-decay-style constant --lr-warmup-samples 640 --mock-data --recompute-activations-of-mine 3
  --recompute-granularity selective --recompute-modules core_attn mlp
)
torchrun --nproc-per-node 8 --nnodes 4 pretrain_gpt.py "${ARGS[@]}"
)");
  const Scenario s = scenario(result);
  const ModelConfig& m = s.model_config;
  const MoeLayerConfig& moe = m.moe_layer_config;
  CHECK(m.num_key_value_heads == 4);
  CHECK(m.activation == "swiglu");
  CHECK(moe.expert_activation == "swiglu");
  CHECK(m.normalization == "rmsnorm");
  CHECK(m.position_embedding == "rotary");
  CHECK(m.rotary_base == 1e6);
  CHECK_FALSE(m.attention_bias);
  CHECK_FALSE(moe.expert_bias);
  CHECK_FALSE(m.tie_embeddings);
  CHECK(m.vocab_size == 1024);  // 128 x TP 2 = 256 divides it
  CHECK(moe.moe_every_k_layers == 2);
  CHECK(moe.expert_hidden_size == 512);
  CHECK(moe.shared_expert_hidden_size == 256);
  CHECK(moe.aux_loss_factor == Approx(0.12));  // 12 MoE layers
  CHECK(moe.aux_loss_scope == "sequence");
  CHECK(moe.z_loss_factor == Approx(0.012));
  CHECK(moe.bias_update_rate == 1e-3);
  CHECK(*moe.capacity_factor == 1.25);
  CHECK(moe.drop_policy == "probability");
  CHECK(s.routing.score_function == "sigmoid");
  CHECK(s.routing.normalize_weights == 1);
  CHECK(s.routing.weight_scale == 2.5);
  const DistributedConfig& d = s.distributed_config;
  CHECK(d.world_size == 32);
  CHECK(d.tensor_parallel_size == 2);
  CHECK(d.pipeline_parallel_size == 2);
  CHECK(d.expert_parallel_size == 8);
  CHECK(d.expert_tensor_parallel_size == 1);
  CHECK(d.data_parallel_size == 2);        // 32 / (8 x 1 x 2)
  CHECK(d.dense_data_parallel_size == 8);  // 32 / (2 x 2)
  CHECK(d.zero_stage == 1);
  CHECK(s.training_config.steps == 100);
  CHECK(s.training_config.schedule.kind == "warmup");
  CHECK(s.training_config.schedule.warmup_steps == 10);
  CHECK(s.training_config.dtype == "bf16");
  CHECK(s.data.format == "synthetic");
  CHECK(s.training_config.recompute == "selective");
  CHECK(s.training_config.recompute_modules == std::vector<std::string>{"attention_core"});
  CHECK_THAT(joined(result.left_out), Contains("--recompute-modules core_attn mlp (legal:"));
  CHECK_THAT(joined(result.left_out),
             Contains("--recompute-activations-of-mine 3 (no counterpart)") &&
                 Contains("--moe-grouped-gemm") && Contains("always one grouped product"));
  CHECK_THAT(joined(result.notes), Contains("0.01 x 12 MoE layers"));
}

TEST_CASE("Megatron-Core's context parallelism: ranks of the dense grid, numerics off") {
  const std::string model =
      "--num-layers 4 --hidden-size 1024 --num-attention-heads 16 --seq-length 8192 "
      "--vocab-size 1024 --micro-batch-size 1 --global-batch-size 16 --bf16 --mock-data "
      "--world-size 16 --tensor-model-parallel-size 2 --context-parallel-size 4 ";
  const ImportedScenario ring = imported(model + "--cp-comm-type all_gather");
  const Scenario s = scenario(ring);
  CHECK(s.distributed_config.context_parallel_size == 4);
  CHECK(s.distributed_config.context_parallel_exchange == "all_gather");
  CHECK(s.training_config.numerics == "none");
  CHECK_THAT(joined(ring.left_out), !Contains("cp-comm-type"));
  // Experts out of all 16 ranks, two of which have sequences of their own.
  const Scenario folded =
      scenario(imported(model + "--num-experts 8 --expert-model-parallel-size 8 "
                                "--expert-tensor-parallel-size 1"));
  CHECK(folded.distributed_config.dense_data_parallel_size == 2);
  CHECK(folded.distributed_config.data_parallel_size == 2);
  CHECK(folded.distributed_config.context_parallel_exchange == "p2p");
  CHECK_THAT(joined(imported(model + "--cp-comm-type a2a+p2p").left_out),
             Contains("--cp-comm-type") && Contains("legal: p2p, all_gather, a2a"));
}

TEST_CASE("Megatron-Core's layouts: stages, virtual stages, sequence parallel, sharding") {
  const std::string model =
      "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 "
      "--num-experts 8 --vocab-size 1000 --micro-batch-size 1 --global-batch-size 64 --bf16 "
      "--mock-data ";
  const ImportedScenario piped = imported(
      model +
      "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 4 "
      "--num-layers-per-virtual-pipeline-stage 3 --expert-model-parallel-size 2 --world-size 16 "
      "--use-distributed-optimizer --ddp-bucket-size 1000000 --distributed-timeout-minutes 2 "
      "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
      "--overlap-param-gather --grad-reduce-in-bf16 --tp-comm-overlap "
      "--overlap-moe-expert-parallel-comm");
  const DistributedConfig& d = scenario(piped).distributed_config;
  CHECK(d.sequence_parallel);
  CHECK(d.pipeline_parallel_size == 4);
  CHECK(d.virtual_pipeline_size == 2);  // 24 / (4 x 3)
  CHECK(d.pipeline_schedule == "interleaved_1f1b");
  CHECK(d.expert_tensor_parallel_size == 0);  // that of TP, as there
  CHECK(d.zero_stage == 1);
  CHECK(d.comm_optimization.micro_batch_overlap);
  CHECK(d.comm_optimization.gradient_bucket_bytes == 4000000);
  CHECK(d.timeout_seconds == 120);
  CHECK(scenario(piped).training_config.recompute == "full");
  const std::string left = joined(piped.left_out);
  CHECK_THAT(left, Contains("--overlap-param-gather") &&
                       Contains("--grad-reduce-in-bf16  (legal with sharded gradients") &&
                       Contains("--tp-comm-overlap  (collectives of TP are not overlapped)"));
  CHECK_THAT(left, !Contains("sequence-parallel") && !Contains("recompute"));

  const ImportedScenario uneven = imported(
      model +
      "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 5 "
      "--decoder-last-pipeline-num-layers 3 --sequence-parallel --recompute-granularity full "
      "--recompute-method block --recompute-num-layers 4 --use-megatron-fsdp "
      "--data-parallel-sharding-strategy optim_grads_params --grad-reduce-in-bf16 "
      "--num-distributed-optimizer-instances 2");
  const DistributedConfig& u = scenario(uneven).distributed_config;
  CHECK_FALSE(u.sequence_parallel);  // Megatron turns it off at TP 1
  CHECK(u.num_layers_in_first_pipeline_stage == 5);
  CHECK(u.num_layers_in_last_pipeline_stage == 3);
  CHECK(u.pipeline_schedule == "1f1b");
  CHECK(u.zero_stage == 3);
  CHECK(u.fsdp.mixed_precision.reduce_dtype == "bf16");
  CHECK_THAT(joined(uneven.left_out),
             Contains("--recompute-method block (legal: uniform") &&
                 Contains("--recompute-num-layers 4") &&
                 Contains("--num-distributed-optimizer-instances 2 (legal: fsdp."));
}

TEST_CASE("a softmax over the chosen is the chosen's share of the softmax over all") {
  const std::string base =
      "x.py --num-layers 2 --hidden-size 64 --num-attention-heads 2 "
      "--vocab-size 512 --num-experts 8 --moe-router-topk 2 ";
  CHECK(scenario(imported(base)).routing.normalize_weights == 1);
  CHECK(scenario(imported(base + "--moe-router-pre-softmax")).routing.normalize_weights == 0);
}

TEST_CASE("what is no Megatron, or no number, is refused with its place") {
  CHECK_THROWS_WITH(imported("echo hello\n"), Contains("run.sh") && Contains("--num-layers"));
  CHECK_THROWS_WITH(imported("x.py --hidden-size 8 \\\n --num-layers `nproc`"),
                    Contains("run.sh:2: --num-layers") && Contains("no number"));
}

TEST_CASE("words of a shell script") {
  const auto words = [](const std::string& text) {
    std::vector<std::vector<std::string>> all;
    for (const auto& command : read_shell(text).commands) {
      all.emplace_back();
      for (const ShellWord& word : command) all.back().push_back(word.text);
    }
    return all;
  };
  using Commands = std::vector<std::vector<std::string>>;
  CHECK(words("a 'b  c' \"d \\\" e\" f\\ g # h\ni; j") ==
        Commands{{"a", "b  c", "d \" e", "f g"}, {"i"}, {"j"}});
  CHECK(words("A=1\nB=\"x $A\"\nrun $B \"$B\" '$B' ${C:-7} $C") ==
        Commands{{"run", "x", "1", "x 1", "$B", "7", "7"}});
  CHECK(words("L=(a 'b' \\\n c)\nrun \"${L[@]}\" z") == Commands{{"run", "a", "b", "c", "z"}});
  CHECK(words("run a > log b | tee c\nnext") == Commands{{"run", "a"}, {"next"}});
  CHECK(words("for i in 1 2; do\n x $i\ndone\nlast") == Commands{{"last"}});
  CHECK(words("'never ends") == Commands{{"never ends"}});
}
