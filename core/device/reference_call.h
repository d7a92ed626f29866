#pragma once
// A described op made ready for its reference arithmetic.

#include "core/device/op.h"

namespace moetwin {

/// The same op, attributes and sizes on the tensors' addresses, which the caller keeps alive.
inline ReferenceCall reference_call(const OpCall& call) {
  ReferenceCall ready;
  ready.op = call.op;
  ready.attributes = call.attributes;
  ready.sizes = call.sizes;
  for (size_t i = 0; i < static_cast<size_t>(call.count); ++i) {
    const Tensor& t = call.tensors[i];
    ready.tensors[i] = {t.data(), t.shape, t.dtype};
  }
  return ready;
}

}  // namespace moetwin
