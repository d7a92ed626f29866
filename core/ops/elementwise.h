#pragma once
// Small element-wise ops, initialisation and dropout.

#include "core/base/philox.h"
#include "core/device/op.h"

namespace moetwin {

/// y = a + b; y may be a or b.
OpCall add(const Tensor& a, const Tensor& b, const Tensor& y);
struct ScaleAttr {
  double alpha = 1;
};
/// y += alpha * x.
OpCall scaled_add(const Tensor& x, const Tensor& y, ScaleAttr attr);
/// y = alpha * x; y may be x.
OpCall scale(const Tensor& x, const Tensor& y, ScaleAttr attr);
/// Converts dtype, rounding to nearest even.
OpCall cast(const Tensor& x, const Tensor& y);
/// y = x, bytes.
OpCall copy(const Tensor& x, const Tensor& y);
struct FillAttr {
  double value = 0;
};
OpCall fill(const Tensor& y, FillAttr attr);
/// y [R,...] = sum over p of x [parts*R,...] parts, ascending; accumulated in real_dtype.
struct PartsAttr {
  int64_t parts = 1;
};
OpCall sum_parts(const Tensor& x, const Tensor& y, PartsAttr attr);

/// Normal draws for a slice of a tensor with global extents [G0,G1,G2] that starts at [o0,o1,o2]
/// and has the local extents. They fill columns [column, column + local[2]) of y, whose rows have
/// `pitch` elements (0: local[2]); others are untouched. The draw of an element depends on its
/// global index alone, so a model starts equal in every layout.
struct InitAttr {
  PhiloxKey key;
  double std = 0.02;
  int64_t global[3] = {1, 1, 1}, offset[3] = {0, 0, 0}, local[3] = {1, 1, 1};
  int64_t pitch = 0, column = 0;
  int64_t row_elements() const { return pitch > 0 ? pitch : local[2]; }
};
OpCall init_normal(const Tensor& y, InitAttr attr);

/// y = x * mask / (1 - p), mask from Philox at element_offset + index; the backward is the same op
/// on the gradient. In place allowed.
struct DropoutAttr {
  PhiloxKey key;
  double p = 0;
  int64_t element_offset = 0;
};
OpCall dropout(const Tensor& x, const Tensor& y, DropoutAttr attr);

}  // namespace moetwin
