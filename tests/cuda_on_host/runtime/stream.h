#pragma once
// What a stream of the emulation is: a queue of work and one thread that does it in order.

#include <cuda_runtime.h>

#include <functional>

namespace moetwin::emulated {

/// Puts work on a stream: how kernels, cuBLAS and NCCL run. Returns cudaErrorInvalidResourceHandle
/// for the default stream, which the backend does not use. `what` is a string literal for messages.
cudaError_t enqueue(cudaStream_t stream, const char* what, std::function<void()> work);

/// The device a stream was made on.
int device_of(cudaStream_t stream);

}  // namespace moetwin::emulated
