#pragma once
// Activations and their backward. R is any number of rows; with a host `rows` count (one entry)
// only that many leading rows are touched.

#include "core/device/op.h"

namespace moetwin {

struct GeluAttr {
  bool tanh_form = false;
};

/// y = gelu(x). Same shapes.
OpCall gelu(const Tensor& x, const Tensor& y, GeluAttr attr);
/// dx = dy * gelu'(x); dx may be dy.
OpCall gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, GeluAttr attr);
/// y = silu(gate) * up. x [R,2F] = gate | up, y [R,F].
OpCall swiglu(const Tensor& x, const Tensor& y);
/// dx [R,2F] from x and dy [R,F].
OpCall swiglu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx);

}  // namespace moetwin
