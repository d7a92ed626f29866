#pragma once
// The kernels of the CUDA backend, one function per op. Each only enqueues work on the stream of
// its context; nothing here waits, allocates device memory or keeps state between calls but for
// GemmPlans.

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "core/device/op.h"

namespace moetwin {

class GemmPlans;

/// Scratch memory of one stream: what an op takes may be used by the kernels it enqueues and by
/// nobody else before them in stream order. The backend starts it afresh before each op, without
/// waiting: stream order keeps ops apart.
class Scratch {
 public:
  virtual ~Scratch() = default;
  /// Device memory, aligned to 256 bytes. Throws Error(capacity) when there is none.
  virtual void* take(int64_t bytes) = 0;
};

/// What an op needs of its rank besides its operands.
struct CudaLaunchContext {
  cudaStream_t stream = nullptr;
  cublasHandle_t cublas = nullptr;  ///< already set to `stream`, with a workspace of its own
  cublasLtHandle_t cublas_lt = nullptr;
  Scratch* scratch = nullptr;
  GemmPlans* plans = nullptr;  ///< one per rank (ops/gemm_plans.h)
  int multiprocessors = 1;     ///< of the device: kernels size their grids by it
  bool tf32 = false;           ///< products of fp32 may use TF32
};

using CudaKernel = void (*)(const OpCall&, CudaLaunchContext&);
/// Null when there is none, which a test forbids.
CudaKernel find_cuda_kernel(const Op& op);

/// Enqueues the op. Refuses fp64 operands, which only the modelled GPU computes, with
/// Error(configuration); a failing launch or library call is Error(fault) with the op's name.
void launch_cuda_op(const OpCall& call, CudaLaunchContext& context);

}  // namespace moetwin
