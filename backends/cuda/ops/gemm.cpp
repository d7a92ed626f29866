// gemm: one cuBLASLt product, its epilogue fused where cuBLASLt has it.

#include "core/ops/gemm.h"

#include "backends/cuda/ops/epilogue.h"
#include "backends/cuda/ops/functions.h"
#include "backends/cuda/ops/gemm_plans.h"
#include "core/base/error.h"

namespace moetwin::cuda_ops {

void gemm(const OpCall& call, CudaLaunchContext& context) {
  const auto attr = call.get<GemmAttr>();
  const Tensor &bias = call[2], &c = call[3], &pre = call[4];
  GemmProblem p;
  p.m = c.shape[0];
  p.n = c.shape[1];
  p.k = call[0].shape[attr.transpose_a ? 0 : 1];
  if (p.m == 0 || p.n == 0) return;
  p.transpose_a = attr.transpose_a;
  p.transpose_b = attr.transpose_b;
  p.type = call[0].dtype;
  p.c_type = c.dtype;
  p.a = call[0].data();
  p.b = call[1].data();
  p.c = c.data();
  p.beta = attr.accumulate ? 1 : 0;
  if (p.k == 0) {  // an empty sum
    if (!attr.accumulate &&
        cudaMemsetAsync(p.c, 0, static_cast<size_t>(c.bytes()), context.stream) != cudaSuccess)
      throw Error(ErrorClass::fault, "clearing memory");
    return finish_product(context, c, bias, pre, attr.epilogue, {p.m});
  }
  // cuBLASLt's GELU is the tanh form; its second output has c's type and rows of multiples of 8.
  GemmProblem fused = p;
  fused.bias = bias.data();
  fused.bias_type = bias.dtype;
  fused.gelu = attr.epilogue == Epilogue::gelu_tanh;
  const bool extra_output = fused.gelu && pre.defined();
  if (extra_output) fused.aux = pre.data();
  const bool fits = (attr.epilogue != Epilogue::gelu && (fused.gelu || !pre.defined())) &&
                    (!bias.defined() || bias.dtype == c.dtype) &&
                    (!extra_output || (pre.dtype == c.dtype && p.n % 8 == 0));
  const bool tail = bias.defined() || pre.defined() || attr.epilogue != Epilogue::none;
  if (tail && fits && context.plans->run(context, fused)) return;
  // The bias alone may still be fused.
  GemmProblem with_bias = p;
  with_bias.bias = bias.data();
  with_bias.bias_type = bias.dtype;
  if (tail && bias.defined() && bias.dtype == c.dtype && context.plans->run(context, with_bias))
    return finish_product(context, c, {}, pre, attr.epilogue, {p.m});
  context.plans->run(context, p);
  finish_product(context, c, bias, pre, attr.epilogue, {p.m});
}

}  // namespace moetwin::cuda_ops
