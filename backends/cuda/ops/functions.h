#pragma once
// What every file of this folder defines: one function per op, found through table.h.

#include "backends/cuda/ops/table.h"
#include "core/ops/list.h"

namespace moetwin::cuda_ops {

#define MOETWIN_CUDA_OP(name) void name(const OpCall& call, CudaLaunchContext& context);
MOETWIN_OPS(MOETWIN_CUDA_OP)
#undef MOETWIN_CUDA_OP

}  // namespace moetwin::cuda_ops
