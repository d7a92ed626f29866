// 1F1B (PipeDream-Flush, Narayanan et al. 2021): as many forwards as there are stages behind this
// one, then a forward and a backward in turns. The bubble is that of GPipe, (p - 1) / m, but at
// most p - stage micro-batches are in flight.
#include <algorithm>

#include "core/parallel/pipeline_schedule.h"

namespace moetwin::schedules {

std::vector<PipelineAction> one_forward_one_backward(const PipelineShape& shape) {
  const int64_t m = shape.micro_batches;
  const int64_t ahead = std::min(shape.stages - 1 - shape.stage, m);
  std::vector<PipelineAction> actions;
  for (int64_t i = 0; i < ahead; ++i) actions.push_back({PipelineWork::forward, i, 0});
  for (int64_t i = 0; i < m; ++i) {
    if (ahead + i < m) actions.push_back({PipelineWork::forward, ahead + i, 0});
    actions.push_back({PipelineWork::backward, i, 0});
  }
  return actions;
}

}  // namespace moetwin::schedules
