#pragma once
// The GPU's body of launch().

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "core/base/error.h"

namespace moetwin {

inline void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw Error(ErrorClass::fault, std::string(what) + ": " + cudaGetErrorString(error));
}

template <class... Parameters>
void start_kernel(void (*kernel)(Parameters...), int64_t blocks, int threads, int64_t shared_bytes,
                  cudaStream_t stream, std::tuple<Parameters...> values) {
  // What a kernel may have without asking.
  constexpr int64_t kPlainShared = 48 * 1024;
  if (shared_bytes > kPlainShared)
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)),
               "shared memory of a kernel");
  std::apply(
      [&](Parameters&... value) {
        void* pointers[] = {&value..., nullptr};
        check_cuda(cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(blocks)),
                                    dim3(static_cast<unsigned>(threads)), pointers,
                                    static_cast<size_t>(shared_bytes), stream),
                   "launch of a kernel");
      },
      values);
}

}  // namespace moetwin
