#pragma once
// Bias, value before the activation and GELU after a product, where the product itself could not do
// them.

#include <vector>

#include "backends/cuda/ops/table.h"
#include "core/ops/gemm.h"

namespace moetwin::cuda_ops {

/// c += bias of the row's group (absent: none); pre = c; c = epilogue(c). c [N,M]; bias [G,M];
/// `rows`: of each group, from row 0 on.
void finish_product(CudaLaunchContext& context, const Tensor& c, const Tensor& bias,
                    const Tensor& pre, Epilogue epilogue, const std::vector<int64_t>& rows);

}  // namespace moetwin::cuda_ops
