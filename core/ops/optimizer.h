#pragma once
// Optimizer steps over flat ranges, gradient norm and clip factor.

#include "core/device/op.h"

namespace moetwin {

struct AdamWAttr {
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
  int64_t step = 1;
};
/// AdamW (Loshchilov and Hutter 2019) with bias correction; g = gradient * scale[0]. All [n]; scale
/// real [1].
OpCall adamw(const Tensor& parameter, const Tensor& gradient, const Tensor& m, const Tensor& v,
             const Tensor& scale, AdamWAttr attr);
struct SgdAttr {
  double learning_rate = 0, weight_decay = 0;
};
OpCall sgd(const Tensor& parameter, const Tensor& gradient, const Tensor& scale, SgdAttr attr);

/// sum real [1] += sum of x^2, blockwise in ascending order.
OpCall sum_squares(const Tensor& x, const Tensor& sum);

struct ClipAttr {
  double max_norm = 0;
  double nominal_tokens = 0;
};
/// totals real [2] = {sum of squares, valid tokens} over the world; out real [2] = {factor on
/// gradients, norm}: unscale = nominal / valid, norm = sqrt(squares) * unscale, factor = unscale *
/// min(1, max_norm / (norm + 1e-6)); max_norm 0: no clip.
OpCall clip_factor(const Tensor& totals, const Tensor& out, ClipAttr attr);

}  // namespace moetwin
