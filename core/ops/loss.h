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

/// Columns of a vocabulary that is split over ranks: this part's first `classes` columns are
/// classes [first, first + classes) of `vocabulary`; columns beyond them are padding, which never
/// counts.
struct VocabPartAttr {
  int64_t first = 0, classes = 0, vocabulary = 0;
};
/// What the other parts must know of this one: logits [T,V] -> statistics real [3,T]: the largest
/// logit m (-inf without classes), sum of exp(logit - m), and the target's logit where it is in
/// this part, else 0. targets i32 [T], -1: not counted.
OpCall vocab_statistics(const Tensor& logits, const Tensor& targets, const Tensor& statistics,
                        VocabPartAttr attr);

struct VocabCrossEntropyAttr {
  VocabPartAttr part;
  double gradient_scale = 0;  ///< as in CrossEntropyAttr
  int64_t parts = 1;
};
/// cross_entropy of one part: statistics real [parts * 3, T], those of all parts in order. The
/// logits become this part of the gradient (padding: 0); sums += as if the logits were whole.
OpCall vocab_cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& statistics,
                           const Tensor& sums, VocabCrossEntropyAttr attr);

}  // namespace moetwin
