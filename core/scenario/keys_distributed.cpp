// distributed_config: how the ranks are factored and how they talk.
#include "core/scenario/key_list.h"
#include "core/scenario/sharding.h"

namespace moetwin {

void add_distributed_keys(KeyList& list) {
  constexpr double kMostRanks = 1 << 20;
  list.section("distributed_config",
               "How world_size is factored: data x expert x tensor x pipeline parallel.");
  list.key(MOETWIN_KEY(distributed_config.world_size), "Ranks (GPUs): the product of the sizes.")
      .between(1, kMostRanks);
  list.key(MOETWIN_KEY(distributed_config.data_parallel_size),
           "Copies of each expert (expert data parallel, EDP).")
      .between(1, kMostRanks);
  list.key(MOETWIN_KEY(distributed_config.expert_parallel_size),
           "Ranks over which the experts of a layer are spread (EP).")
      .between(1, kMostRanks);
  list.key(MOETWIN_KEY(distributed_config.tensor_parallel_size),
           "Ranks over which attention and dense FFN are split (TP).")
      .between(1, kMostRanks);
  list.key(
      MOETWIN_KEY(distributed_config.sequence_parallel),
      "Norms, dropout and residuals on slices of the tokens over the TP ranks; nothing at TP 1.");
  list.key(MOETWIN_KEY(distributed_config.pipeline_parallel_size), "Pipeline stages (PP).")
      .between(1, kMostRanks);
  list.key(MOETWIN_KEY(distributed_config.pipeline_schedule),
           "Order of forwards and backwards on a stage; see docs/pipeline.md.")
      .one_of({"gpipe", "1f1b", "interleaved_1f1b", "zb_h1"});
  list.key(MOETWIN_KEY(distributed_config.virtual_pipeline_size),
           "Chunks of layers on each stage, with pipeline_schedule interleaved_1f1b.")
      .between(1, kMostRanks);
  list.key(MOETWIN_KEY(distributed_config.layers_per_stage),
           "Layers of each stage (of each virtual stage, in the order data flows); empty: equally "
           "many.")
      .at_least(0);
  list.key(MOETWIN_KEY(distributed_config.num_layers_in_first_pipeline_stage),
           "Layers of the first stage, where it has fewer or more than the others; 0: equal.")
      .at_least(0);
  list.key(MOETWIN_KEY(distributed_config.num_layers_in_last_pipeline_stage),
           "Layers of the last stage, where it has fewer or more than the others; 0: equal.")
      .at_least(0);
  list.key(MOETWIN_KEY(distributed_config.context_parallel_size),
           "Ranks over which a sequence is split (CP), among the dense data parallel ones; needs "
           "training_config.numerics none.")
      .between(1, kMostRanks);
  list.key(
          MOETWIN_KEY(distributed_config.context_parallel_exchange),
          "How attention under CP gets at the other ranks' tokens: p2p (keys and values go round a "
          "ring beside the kernels), all_gather (of keys and values, before them), a2a (each rank "
          "gets all tokens of its part of the heads).")
      .one_of({"p2p", "all_gather", "a2a"});
  list.key(MOETWIN_KEY(distributed_config.expert_tensor_parallel_size),
           "Ranks over which each expert is split (ETP); 0: tensor_parallel_size.")
      .between(0, kMostRanks);
  list.key(MOETWIN_KEY(distributed_config.parallel_folding),
           "Let expert parallelism cross tensor parallelism; data_parallel_size then follows.");
  list.key(MOETWIN_KEY(distributed_config.dense_data_parallel_size),
           "Dense data parallel size (DDP: ranks with sequences of their own, CP not counted) with "
           "parallel_folding; 0: from the other sizes.")
      .between(0, kMostRanks);
  list.key(MOETWIN_KEY(distributed_config.zero_stage),
           "Sharding over data parallel copies in ZeRO's words; 0: none, 1: optimizer state, 2: "
           "with "
           "gradients (SHARD_GRAD_OP), 3: with parameters (FULL_SHARD).")
      .between(0, 3);
  list.section(
      "distributed_config.fsdp",
      "Fully sharded data parallel: dense parameters over dense-DP, experts over expert-DP.");
  list.key(MOETWIN_KEY(distributed_config.fsdp.sharding_strategy),
           "What is sharded, in PyTorch's words; auto: what zero_stage says.")
      .one_of(sharding_names());
  list.key(MOETWIN_KEY(distributed_config.fsdp.backward_prefetch),
           "Gather the next layer's parameters before (PRE) or after (POST) the backward of this "
           "one is launched, or when it is needed.")
      .one_of({"BACKWARD_PRE", "BACKWARD_POST", "none"});
  list.key(MOETWIN_KEY(distributed_config.fsdp.forward_prefetch),
           "Gather the next layer's parameters before the forward of this one is launched.");
  list.key(MOETWIN_KEY(distributed_config.fsdp.limit_all_gathers),
           "Layers whose parameters may be gathered, or still in memory, at once (where they are "
           "freed after use).")
      .between(1, 1 << 20);
  list.key(MOETWIN_KEY(distributed_config.fsdp.cpu_offload),
           "Keep sharded parameters and optimizer state in host memory.");
  list.section("distributed_config.fsdp.mixed_precision",
               "Types of FSDP's computing and reducing.");
  list.key(MOETWIN_KEY(distributed_config.fsdp.mixed_precision.param_dtype),
           "Type of gathered parameters and activations; auto: training_config.dtype.")
      .one_of({"auto", "fp32", "bf16", "fp16", "fp64"});
  list.key(MOETWIN_KEY(distributed_config.fsdp.mixed_precision.reduce_dtype),
           "Type in which sharded gradients are summed over ranks; auto: fp32 (fp64 with fp64).")
      .one_of({"auto", "fp32", "bf16", "fp16"});
  list.key(MOETWIN_KEY(distributed_config.fsdp.mixed_precision.buffer_dtype),
           "Type of the balance bias, which is never narrower than fp32.")
      .one_of({"auto", "fp32"});
  list.section("distributed_config.comm_optimization", "Overlap of communication and computing.");
  list.key(MOETWIN_KEY(distributed_config.comm_optimization.all_to_all_overlap),
           "Split tokens into chunks and exchange one while experts work on another.");
  list.key(MOETWIN_KEY(distributed_config.comm_optimization.all_to_all_chunks),
           "Chunks with all_to_all_overlap.")
      .between(1, 64);
  list.key(MOETWIN_KEY(distributed_config.comm_optimization.micro_batch_overlap),
           "Run the forward of one micro-batch beside the backward of another: the token exchange "
           "of one is under way while the other computes; see docs/pipeline.md.");
  list.key(MOETWIN_KEY(distributed_config.comm_optimization.gradient_reduction_overlap),
           "Reduce gradient buckets while backward goes on.");
  list.key(MOETWIN_KEY(distributed_config.comm_optimization.gradient_bucket_bytes),
           "Size of one gradient bucket.")
      .in("bytes")
      .at_least(1);
  list.key(MOETWIN_KEY(distributed_config.distributed_backend),
           "Collective library used or modelled.")
      .one_of({"nccl"});
  list.key(MOETWIN_KEY(distributed_config.master_addr),
           "Rendezvous host; env:// reads MASTER_ADDR.");
  list.key(MOETWIN_KEY(distributed_config.master_port),
           "Rendezvous port, 1 to 65535; env:// reads MASTER_PORT.")
      .or_integer();
  list.key(MOETWIN_KEY(distributed_config.timeout_seconds),
           "A collective that has not arrived by then ends the job.")
      .in("seconds")
      .above(0);
  list.key(MOETWIN_KEY(distributed_config.check_collectives),
           "Compare every collective over all ranks before it starts (on GPUs; slow).");
  list.key(MOETWIN_KEY(distributed_config.check_replicas_every_steps),
           "Steps between comparisons, bit by bit, of what ranks keep copies of: weights and "
           "optimizer state; 0: never. A copy that differs ends the job.")
      .in("steps")
      .at_least(0);
  list.key(MOETWIN_KEY(nccl),
           "NCCL_* environment variables for the run, e.g. {\"NCCL_ALGO\": \"Tree\"}.");
}

}  // namespace moetwin
