#pragma once
// Results of CUDA and NCCL calls as errors.

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>

#include "core/base/error.h"

namespace moetwin {

/// Throws Error(fault), or Error(capacity) where device memory ended, naming what was tried.
inline void check_cuda(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw Error(
      result == cudaErrorMemoryAllocation ? ErrorClass::capacity : ErrorClass::fault,
      fmt::format("{}: {} ({})", what, cudaGetErrorString(result), cudaGetErrorName(result)));
}

/// ncclInProgress passes: the caller polls.
inline void check_nccl(ncclResult_t result, const char* what, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* last = ncclGetLastError(comm);
  throw Error(ErrorClass::fault, fmt::format("{}: {}{}{}", what, ncclGetErrorString(result),
                                             last && *last ? ": " : "", last ? last : ""));
}

}  // namespace moetwin
