#pragma once
// The layouts between which checkpoints are carried. A new parallel strategy adds rows.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/core/train/small_training.h"

namespace moetwin::test {

struct CheckpointLayout {
  int64_t dp = 1, ep = 1;
  int64_t zero = 0;
  std::string type = "sharded";
  bool async = false;
  int64_t tp = 1, etp = 1;
  bool sequence = false;
  std::string fsdp = "auto";  ///< sharding strategy; auto: as `zero` says
  bool offload = false;
  int64_t pp = 1, virtual_stages = 1;
  std::string schedule = "1f1b";
  std::vector<int64_t> stages{};  ///< layers of each (virtual) stage; empty: equally many

  std::string name() const {
    return fmt::format("DP={} EP={} TP={} ETP={} PP={}x{} {} zero={} {} {}{}{}", dp, ep, tp, etp,
                       pp, virtual_stages, schedule, zero, fsdp, type, async ? " async" : "",
                       offload ? " offload" : "");
  }
  /// Four experts on 16 sequences a step, fp32, AdamW with clipping, balance bias.
  Scenario scenario() const {
    Scenario s = small_training(dp, ep, 4, 2, 1);
    s.model_config.moe_layer_config.bias_update_rate = 0.01;
    s.distributed_config.zero_stage = zero;
    s.distributed_config.world_size = dp * ep * tp * pp;
    s.distributed_config.pipeline_parallel_size = pp;
    s.distributed_config.virtual_pipeline_size = virtual_stages;
    s.distributed_config.pipeline_schedule = schedule;
    s.distributed_config.layers_per_stage = stages;
    s.distributed_config.tensor_parallel_size = tp;
    s.distributed_config.expert_tensor_parallel_size = etp;
    s.distributed_config.sequence_parallel = sequence;
    s.distributed_config.fsdp.sharding_strategy = fsdp;
    s.distributed_config.fsdp.cpu_offload = offload;
    s.training_config.global_batch_size = 16;
    s.training_config.micro_batch_size = 1;
    s.training_config.dtype = "fp32";
    s.training_config.optimizer = "adamw";
    s.training_config.learning_rate = 0.003;
    s.training_config.weight_decay = 0.1;
    s.training_config.max_grad_norm = 0.05;  // always active
    s.checkpoint.type = type;
    s.checkpoint.async = async;
    s.checkpoint.keep_last = 0;
    return s;
  }
};

/// Stages, in words of their own because the list of factors is long.
inline CheckpointLayout pipelined(CheckpointLayout layout, int64_t pp, std::vector<int64_t> stages,
                                  const std::string& schedule = "1f1b") {
  layout.pp = pp;
  layout.virtual_stages = static_cast<int64_t>(stages.size()) / pp;
  layout.schedule = schedule;
  layout.stages = std::move(stages);
  return layout;
}

inline std::vector<CheckpointLayout> saving_layouts() {
  return {{1, 1, 0, "sharded", false},
          {2, 1, 1, "full", false},
          {1, 2, 0, "sharded", true},
          {2, 2, 1, "sharded", false},
          {1, 4, 0, "full", true},
          {4, 2, 1, "sharded", true},
          {1, 8, 3, "sharded", false, 1, 1, false, "auto", true},
          {16, 1, 2, "full", false},
          {1, 2, 1, "sharded", false, 2, 2, true},
          {1, 1, 0, "sharded", false, 2, 1},
          // Tied embeddings on the first and the last stage, which have no layer.
          pipelined({1, 1}, 4, {0, 1, 1, 0}),
          pipelined({2, 1, 1, "full"}, 2, {1, 0, 0, 1}, "interleaved_1f1b")};
}

inline std::vector<CheckpointLayout> loading_layouts() {
  return {{1, 1, 1},
          {2, 1, 0},
          {1, 2, 1},
          {2, 2, 0},
          {4, 1, 2},
          {2, 4, 1},
          {2, 8, 0},
          {1, 16, 1},
          {2, 2, 1, "sharded", false, 2, 1},
          {4, 2, 3},
          {2, 2, 0, "full", false, 1, 1, false, "HYBRID_SHARD"},
          {2, 4, 0, "sharded", false, 1, 1, false, "SHARD_GRAD_OP", true},
          pipelined({2, 2, 3}, 2, {1, 1}, "zb_h1"),
          pipelined({1, 2, 0, "sharded", false, 2, 1}, 2, {0, 1, 1, 0}, "interleaved_1f1b"),
          pipelined({1, 4}, 3, {2, 0, 0})};
}

}  // namespace moetwin::test
