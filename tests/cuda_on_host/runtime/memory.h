#pragma once
// Which memory is what: the emulation refuses copies that a GPU would not do as asked.

#include <cuda_runtime.h>

#include <cstddef>

namespace moetwin::emulated {

enum class Place { unknown, device, pinned };

/// Where all of [pointer, pointer + bytes) lies; unknown when it is in no single allocation.
Place place_of(const void* pointer, size_t bytes);
/// Bytes of device memory in use on a device.
size_t device_bytes_in_use(int device);

}  // namespace moetwin::emulated
