#pragma once
// How a model's rotary frequencies and its scores are scaled: linear interpolation, or YaRN (Peng
// et al., arXiv 2309.00071).

#include "core/ops/attention.h"
#include "core/scenario/scenario.h"

namespace moetwin {

/// For heads of which `dim` elements turn. YaRN's ramp lies between the pairs that make beta_fast
/// and beta_slow turns in yarn.original_sequence_length, rounded outwards; cosines and sines are
/// multiplied by m(1), or by m(mscale) / m(mscale_all_dim) where both are given, with m(x) = 0.1 x
/// ln(factor) + 1.
RotaryAngles rotary_angles(const ModelConfig& model, int64_t dim);

/// What scores are multiplied by: 1/sqrt(D), and for latent attention under YaRN with
/// mscale_all_dim m(mscale_all_dim)^2 (DeepSeek-V2, arXiv 2405.04434).
double score_scale(const ModelConfig& model);

}  // namespace moetwin
