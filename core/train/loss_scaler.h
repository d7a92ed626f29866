#pragma once
// Loss scaling of 16-bit training (Micikevicius et al. 2018; PyTorch's GradScaler): the loss is
// multiplied before backward, gradients are divided in the pass that clips them, and a step whose
// gradients overflow is left out on all ranks.

#include <cstdint>

#include "core/device/tensor.h"
#include "core/scenario/scenario.h"
#include "core/train/checkpoint/manifest.h"

namespace moetwin {

class LossScaler {
 public:
  LossScaler(const LossScalingConfig& config, DType dtype);

  /// Whether an overflow is a step to leave out; otherwise it is the end of the run.
  bool active() const { return mode_ != Mode::none; }
  /// Of the next step; 1 where not active.
  double scale() const { return scale_; }
  /// After a step: whether the gradients of the world overflowed, the same on every rank. Throws
  /// Error(non_finite) when a dynamic scale would fall below its minimum.
  void update(int64_t step, bool overflow);

  void save(TrainingPosition& position) const;
  void restore(const TrainingPosition& position);

 private:
  enum class Mode : uint8_t { none, fixed, dynamic };
  LossScalingConfig config_;
  Mode mode_ = Mode::none;
  double scale_ = 1;
  int64_t clean_steps_ = 0;  ///< since the scale last changed or an overflow
  int64_t overflows_ = 0;    ///< since the scale last changed
};

}  // namespace moetwin
