#pragma once
// In what order a stage runs the forwards and backwards of its micro-batches: pure lists, made
// before training.

#include <cstdint>
#include <string>
#include <vector>

namespace moetwin {

enum class PipelineWork : uint8_t {
  forward,
  backward,         ///< whole
  backward_input,   ///< gradients of activations alone
  backward_weight,  ///< gradients of parameters, after backward_input
};

/// One thing to do: `chunk` is the rank's own number of a virtual stage.
struct PipelineAction {
  PipelineWork work = PipelineWork::forward;
  int64_t micro_batch = 0, chunk = 0;
  bool beside_next = false;  ///< a forward that takes turns with the backward after it
  bool operator==(const PipelineAction&) const = default;
};

struct PipelineShape {
  int64_t stages = 1;         ///< p
  int64_t stage = 0;          ///< of this rank
  int64_t micro_batches = 1;  ///< m, of a step
  int64_t chunks = 1;         ///< v, virtual stages of a rank
  /// Forwards and backwards of different micro-batches are paired (1F1B schedules): one more
  /// micro-batch is in flight for each hop between stages, so that no member of a pair waits for
  /// the other.
  bool paired = false;
};

/// The actions of one step under `distributed_config.pipeline_schedule`. Of each micro-batch and
/// chunk one forward and one backward, whole or in its two parts; in every chunk micro-batches
/// come in ascending order. With one stage every schedule runs forward and backward in turns.
std::vector<PipelineAction> pipeline_actions(const std::string& schedule,
                                             const PipelineShape& shape);

/// Forwards alone, for evaluation: in groups of p micro-batches, chunk by chunk, so that the stages
/// work side by side.
std::vector<PipelineAction> forward_actions(const PipelineShape& shape);

/// The schedules, one file each.
namespace schedules {
std::vector<PipelineAction> gpipe(const PipelineShape& shape);
std::vector<PipelineAction> one_forward_one_backward(const PipelineShape& shape);
std::vector<PipelineAction> interleaved(const PipelineShape& shape);
std::vector<PipelineAction> zero_bubble_h1(const PipelineShape& shape);
}  // namespace schedules

}  // namespace moetwin
