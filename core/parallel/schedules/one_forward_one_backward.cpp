// 1F1B (PipeDream-Flush, Narayanan et al. 2021): as many forwards as there are stages behind this
// one, then a forward and a backward in turns. The bubble is that of GPipe, (p - 1) / m, but at
// most p - stage micro-batches are in flight.
//
// Paired: the forward and the backward of a turn run side by side, so a result reaches the next
// stage a whole turn later, in both directions. Hence 2 (p - 1 - stage) + 1 forwards ahead, as
// interleaved 1F1B has them, and at most 2 (p - stage) micro-batches in flight (DualPipe,
// DeepSeek-V3, section 3.2.1, has the same pairs in two directions).
#include <algorithm>

#include "core/parallel/pipeline_schedule.h"

namespace moetwin::schedules {

std::vector<PipelineAction> one_forward_one_backward(const PipelineShape& shape) {
  const int64_t m = shape.micro_batches;
  const int64_t behind = shape.stages - 1 - shape.stage;
  const int64_t ahead = std::min(shape.paired ? 2 * behind + 1 : behind, m);
  std::vector<PipelineAction> actions;
  for (int64_t i = 0; i < ahead; ++i) actions.push_back({PipelineWork::forward, i, 0});
  for (int64_t i = 0; i < m; ++i) {
    if (ahead + i < m) actions.push_back({PipelineWork::forward, ahead + i, 0, shape.paired});
    actions.push_back({PipelineWork::backward, i, 0});
  }
  return actions;
}

}  // namespace moetwin::schedules
