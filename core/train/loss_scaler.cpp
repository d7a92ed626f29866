#include "core/train/loss_scaler.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace moetwin {

LossScaler::LossScaler(const LossScalingConfig& config, DType dtype) : config_(config) {
  const bool dynamic = config.mode == "dynamic" || (config.mode == "auto" && dtype == DType::f16);
  if (dynamic) mode_ = Mode::dynamic;
  if (config.mode == "static") mode_ = Mode::fixed;
  if (active()) scale_ = config.initial_scale;
}

void LossScaler::update(int64_t step, bool overflow) {
  if (mode_ != Mode::dynamic) return;
  if (!overflow) {
    if (++clean_steps_ < config_.growth_interval_steps) return;
    scale_ *= config_.growth_factor;
    clean_steps_ = overflows_ = 0;
    return;
  }
  clean_steps_ = 0;
  if (++overflows_ < config_.hysteresis) return;
  overflows_ = 0;
  scale_ *= config_.backoff_factor;
  if (scale_ < config_.minimum_scale)
    throw Error(ErrorClass::non_finite,
                fmt::format("step {}: gradients overflow at loss scale {}, and training_config."
                            "loss_scaling.minimum_scale is {}: they are not finite whatever the "
                            "scale; lower the learning rate, or train in bf16",
                            step, scale_ / config_.backoff_factor, config_.minimum_scale));
}

void LossScaler::save(TrainingPosition& position) const {
  position.loss_scale = scale_;
  position.clean_steps = clean_steps_;
  position.overflows = overflows_;
}

void LossScaler::restore(const TrainingPosition& position) {
  // A static scale, or none, is what the scenario says.
  if (mode_ != Mode::dynamic) return;
  // A training without a scale has none to go on with.
  if (position.loss_scale != 1) scale_ = position.loss_scale;
  clean_steps_ = position.clean_steps;
  overflows_ = position.overflows;
}

}  // namespace moetwin
