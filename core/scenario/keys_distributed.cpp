// distributed_config: how the ranks are factored and how they talk.
#include "core/scenario/key_list.h"

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
  list.key(MOETWIN_KEY(distributed_config.pipeline_parallel_size), "Pipeline stages (PP).")
      .between(1, kMostRanks);
  list.key(MOETWIN_KEY(distributed_config.context_parallel_size),
           "Ranks over which a sequence is split (CP); only 1 in this version.")
      .between(1, kMostRanks);
  list.key(MOETWIN_KEY(distributed_config.expert_tensor_parallel_size),
           "Ranks over which each expert is split (ETP); 0: tensor_parallel_size.")
      .between(0, kMostRanks);
  list.key(MOETWIN_KEY(distributed_config.parallel_folding),
           "Let expert parallelism cross tensor parallelism; data_parallel_size then follows.");
  list.key(MOETWIN_KEY(distributed_config.dense_data_parallel_size),
           "Copies of the dense weights (DDP) with parallel_folding; 0: from the other sizes.")
      .between(0, kMostRanks);
  list.key(MOETWIN_KEY(distributed_config.zero_stage),
           "Sharding over data parallel copies; 0: none, 1: optimizer state.")
      .between(0, 1);
  list.section("distributed_config.comm_optimization", "Overlap of communication and computing.");
  list.key(MOETWIN_KEY(distributed_config.comm_optimization.all_to_all_overlap),
           "Split tokens into chunks and exchange one while experts work on another.");
  list.key(MOETWIN_KEY(distributed_config.comm_optimization.all_to_all_chunks),
           "Chunks with all_to_all_overlap.")
      .between(1, 64);
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
  list.key(MOETWIN_KEY(nccl),
           "NCCL_* environment variables for the run, e.g. {\"NCCL_ALGO\": \"Tree\"}.");
}

}  // namespace moetwin
