#include "core/parallel/pipeline_schedule.h"

#include <algorithm>
#include <array>

#include "core/base/error.h"

namespace moetwin {

namespace {
struct Row {
  const char* name;
  std::vector<PipelineAction> (*actions)(const PipelineShape&);
};
constexpr std::array<Row, 4> kSchedules{{{"gpipe", schedules::gpipe},
                                         {"1f1b", schedules::one_forward_one_backward},
                                         {"interleaved_1f1b", schedules::interleaved},
                                         {"zb_h1", schedules::zero_bubble_h1}}};
}  // namespace

std::vector<PipelineAction> pipeline_actions(const std::string& schedule,
                                             const PipelineShape& shape) {
  if (shape.stages == 1) return schedules::one_forward_one_backward(shape);
  for (const Row& row : kSchedules)
    if (schedule == row.name) return row.actions(shape);
  throw Error(ErrorClass::internal, "internal error: unknown pipeline schedule " + schedule);
}

std::vector<PipelineAction> forward_actions(const PipelineShape& shape) {
  std::vector<PipelineAction> actions;
  for (int64_t first = 0; first < shape.micro_batches; first += shape.stages)
    for (int64_t chunk = 0; chunk < shape.chunks; ++chunk)
      for (int64_t i = first; i < std::min(first + shape.stages, shape.micro_batches); ++i)
        actions.push_back({PipelineWork::forward, i, chunk});
  return actions;
}

}  // namespace moetwin
