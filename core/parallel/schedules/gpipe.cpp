// GPipe (Huang et al. 2019): all forwards, then all backwards. Every micro-batch is in flight at
// once; the bubble is (p - 1) / m of the work.
#include "core/parallel/pipeline_schedule.h"

namespace moetwin::schedules {

std::vector<PipelineAction> gpipe(const PipelineShape& shape) {
  std::vector<PipelineAction> actions;
  for (const PipelineWork work : {PipelineWork::forward, PipelineWork::backward})
    for (int64_t i = 0; i < shape.micro_batches; ++i) actions.push_back({work, i, 0});
  return actions;
}

}  // namespace moetwin::schedules
