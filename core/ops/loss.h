#pragma once
// Cross-entropy without materialised probabilities.

#include "core/device/op.h"

namespace moetwin {

struct CrossEntropyAttr {
  double gradient_scale =
      0;  ///< logits become (softmax - onehot) * gradient_scale; 0: logits are left as they are
};
/// logits [T,V] read and, with a gradient scale, overwritten by their gradient; targets i32 [T],
/// -1: not counted (gradient 0); sums real [2] += {sum of losses (nats), valid tokens}.
OpCall cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& sums,
                     CrossEntropyAttr attr);

}  // namespace moetwin
