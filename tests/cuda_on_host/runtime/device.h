#pragma once
// Devices of the emulation and the errors that stay with them.

#include <cuda_runtime.h>

#include <string>

namespace moetwin::emulated {

/// The calling thread's device.
int current_device();
/// Notes a misuse for cudaGetLastError, says it on stderr, and gives the error back.
cudaError_t misuse(cudaError_t error, const std::string& what);
/// Work on the device failed: all later calls for it return this.
void fail_device(int device, const std::string& what);
/// cudaSuccess, or what fail_device left.
cudaError_t device_error(int device);

}  // namespace moetwin::emulated
