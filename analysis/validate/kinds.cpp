#include "analysis/validate/kind.h"

namespace moetwin {

std::vector<Kind> kinds() {
  return {{"collectives",
           "nccl",
           "one collective, alone on the machine",
           {"id", "series", "collective", "gpu", "n_gpus", "size_bytes", "time_us", "busbw_GBps"},
           plan_collectives},
          {"gemm",
           "gemm",
           "one kernel, alone on a GPU",
           {"id", "series", "op", "gpu", "dtype", "M", "N", "K", "time_ms", "tflops"},
           plan_kernels},
          {"dense",
           "dense_training",
           "an iteration of training without experts",
           {"id", "series", "model", "layers", "hidden", "heads", "seq", "gpu", "n_gpus",
            "framework", "micro_batch", "global_batch", "iter_time_s"},
           plan_dense},
          {"moe",
           "moe_training",
           "an iteration of training with experts",
           {"id", "series", "model", "hidden", "experts", "topk", "moe_ffn", "gpu", "n_gpus",
            "framework", "EP", "micro_batch", "global_batch", "iter_time_s"},
           plan_moe},
          {"memory",
           "memory",
           "bytes on a GPU while training",
           {"id", "series", "model", "gpu", "n_gpus", "framework", "component", "value", "unit"},
           plan_memory}};
}

void for_each_row(const std::vector<PublishedRow>& rows, RowPlan& plan,
                  const std::function<void(const PublishedRow&, size_t, RowResult&)>& read) {
  for (size_t i = 0; i < rows.size(); ++i) {
    try {
      read(rows[i], i, plan.results[i]);
    } catch (const UnreadableField& field) {
      refuse(plan.results[i], field.what());
    }
  }
}

void refuse(RowResult& result, const std::string& reason) {
  result.standing = RowStanding::not_expressible;
  result.reason = reason;
}

}  // namespace moetwin
