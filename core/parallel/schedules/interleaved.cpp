// Interleaved 1F1B (Narayanan et al. 2021, "Efficient large-scale language model training on GPU
// clusters"): every rank has v chunks of layers; micro-batches go through a chunk in groups of p.
// The bubble shrinks to (p - 1) / (v m); activations cross stages v times as often.
#include <algorithm>

#include "core/base/error.h"
#include "core/parallel/pipeline_schedule.h"

namespace moetwin::schedules {

std::vector<PipelineAction> interleaved(const PipelineShape& shape) {
  const int64_t p = shape.stages, m = shape.micro_batches, v = shape.chunks, total = m * v;
  require(m % p == 0, "interleaved 1F1B runs whole groups of micro-batches");
  // The k-th forward or backward of a rank: groups of p micro-batches, chunk by chunk.
  const auto kth = [&](PipelineWork work, int64_t k) {
    const int64_t in_group = k % (p * v), chunk = in_group / p;
    return PipelineAction{work, k / (p * v) * p + in_group % p,
                          work == PipelineWork::forward ? chunk : v - 1 - chunk};
  };
  // A chunk's first backward comes back after all v chunks of the group went forward.
  // Paired, one more: else the last stage's backward would need the forward beside it.
  const int64_t ahead =
      std::min((p - 1 - shape.stage) * 2 + (v - 1) * p + (shape.paired ? 1 : 0), total);
  std::vector<PipelineAction> actions;
  for (int64_t k = 0; k < ahead; ++k) actions.push_back(kth(PipelineWork::forward, k));
  for (int64_t k = 0; k < total; ++k) {
    if (ahead + k < total) {
      actions.push_back(kth(PipelineWork::forward, ahead + k));
      actions.back().beside_next = shape.paired;
    }
    actions.push_back(kth(PipelineWork::backward, k));
  }
  return actions;
}

}  // namespace moetwin::schedules
