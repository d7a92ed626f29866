// ZB-H1 (Qi et al. 2023, "Zero bubble pipeline parallelism"): 1F1B whose backward is split. The
// gradient of activations goes to the stage before at once; that of parameters waits, on stage s
// for s micro-batches, and fills the time in which 1F1B waits at the end. At most p micro-batches
// are in flight on every stage, as on the first one of 1F1B; the bubble is (p - 1)(F + B - W)
// instead of (p - 1)(F + B + W), with the times of forward, input and weight part.
#include <algorithm>

#include "core/parallel/pipeline_schedule.h"

namespace moetwin::schedules {

std::vector<PipelineAction> zero_bubble_h1(const PipelineShape& shape) {
  const int64_t m = shape.micro_batches;
  const int64_t ahead = std::min(shape.stages - 1 - shape.stage, m);
  std::vector<PipelineAction> actions;
  for (int64_t i = 0; i < ahead; ++i) actions.push_back({PipelineWork::forward, i, 0});
  for (int64_t i = 0; i < m; ++i) {
    if (ahead + i < m) actions.push_back({PipelineWork::forward, ahead + i, 0});
    actions.push_back({PipelineWork::backward_input, i, 0});
    if (i >= shape.stage) actions.push_back({PipelineWork::backward_weight, i - shape.stage, 0});
  }
  for (int64_t i = std::max<int64_t>(0, m - shape.stage); i < m; ++i)
    actions.push_back({PipelineWork::backward_weight, i, 0});
  return actions;
}

}  // namespace moetwin::schedules
