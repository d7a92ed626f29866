#include "core/nn/rotary_angles.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace moetwin {

namespace {
double mscale(const ModelConfig& model, double m) {
  const double factor = model.rotary_scaling_factor;
  return factor > 1 ? 0.1 * m * std::log(factor) + 1 : 1;
}
/// The pair of dim / 2 that makes so many turns in the original length.
double pair_of_turns(const ModelConfig& model, double turns, double dim) {
  const double length = static_cast<double>(model.yarn.original_sequence_length);
  return dim * std::log(length / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(model.rotary_base));
}
}  // namespace

RotaryAngles rotary_angles(const ModelConfig& model, int64_t dim) {
  RotaryAngles a;
  a.base = model.rotary_base;
  a.scaling_factor = model.rotary_scaling_factor;
  if (model.rotary_scaling != "yarn") return a;
  const YarnConfig& yarn = model.yarn;
  const double d = static_cast<double>(dim);
  a.ramp_begin = std::max(std::floor(pair_of_turns(model, yarn.beta_fast, d)), 0.0);
  a.ramp_end = std::min(std::ceil(pair_of_turns(model, yarn.beta_slow, d)), d - 1);
  if (a.ramp_end <= a.ramp_begin) a.ramp_end = a.ramp_begin + 0.001;
  a.magnitude = yarn.mscale != 0 && yarn.mscale_all_dim != 0
                    ? mscale(model, yarn.mscale) / mscale(model, yarn.mscale_all_dim)
                    : mscale(model, 1);
  return a;
}

double score_scale(const ModelConfig& model) {
  const double plain = 1 / std::sqrt(static_cast<double>(model.dim_per_head()));
  if (!model.latent() || model.rotary_scaling != "yarn" || model.yarn.mscale_all_dim == 0)
    return plain;
  const double m = mscale(model, model.yarn.mscale_all_dim);
  return plain * m * m;
}

}  // namespace moetwin
