#pragma once
// Tensors with shapes and no storage, and one call of every op made of them.

#include <vector>

#include "core/device/op.h"

namespace moetwin::test {

Tensor phantom(const Shape& shape, DType dtype);
HostSizes sizes(std::vector<int64_t> values);

/// One legal call of every op, activations in `dtype`.
std::vector<OpCall> sample_calls(DType dtype);

KernelList kernels_of(const OpCall& call, const KernelChoice& choice = {});

}  // namespace moetwin::test
