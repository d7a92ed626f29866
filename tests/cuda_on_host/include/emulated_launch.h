#pragma once
// The host's body of launch(): the grid runs when its stream comes to it. What a kernel does wrong
// is an exception there, which the emulated runtime keeps as the device's error.

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <tuple>

#include "core/base/error.h"
#include "tests/cuda_on_host/kernels/block.h"
#include "tests/cuda_on_host/runtime/stream.h"

namespace moetwin {

inline void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw Error(ErrorClass::fault, std::string(what) + ": " + cudaGetErrorString(error));
}

template <class... Parameters>
void start_kernel(void (*kernel)(Parameters...), int64_t blocks, int threads, int64_t shared_bytes,
                  cudaStream_t stream, std::tuple<Parameters...> values) {
  const emulated::Grid grid = {blocks, threads, shared_bytes};
  check_cuda(emulated::enqueue(stream, "kernel",
                               [kernel, values, grid] {
                                 emulated::run_grid(grid, [&] { std::apply(kernel, values); });
                               }),
             "launch of a kernel");
}

}  // namespace moetwin
