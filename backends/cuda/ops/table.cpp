#include "backends/cuda/ops/table.h"

#include <string>

#include "backends/cuda/ops/functions.h"
#include "core/base/error.h"

namespace moetwin {

CudaKernel find_cuda_kernel(const Op& op) {
#define MOETWIN_CUDA_ROW(name) cuda_ops::name,
  static constexpr CudaKernel kKernels[] = {MOETWIN_OPS(MOETWIN_CUDA_ROW)};
#undef MOETWIN_CUDA_ROW
  return op.index >= 0 && op.index < static_cast<int>(OpIndex::count) ? kKernels[op.index]
                                                                      : nullptr;
}

void launch_cuda_op(const OpCall& call, CudaLaunchContext& context) {
  const CudaKernel kernel = find_cuda_kernel(*call.op);
  if (!kernel)
    throw Error(ErrorClass::internal, std::string("op ") + call.op->name + " has no CUDA kernel");
  for (int i = 0; i < call.count; ++i)
    if (call[i].defined() && call[i].dtype == DType::f64)
      throw Error(ErrorClass::configuration,
                  std::string("op ") + call.op->name + ": operand " +
                      call.op->operands[static_cast<size_t>(i)].name +
                      " is fp64, which the CUDA backend does not compute; legal: fp32, bf16, fp16 "
                      "(fp64 is for tests on the modelled GPU, --backend sim)");
  try {
    kernel(call, context);
  } catch (const Error& error) {
    throw Error(error.error_class(), std::string("op ") + call.op->name + ": " + error.what());
  }
}

}  // namespace moetwin
