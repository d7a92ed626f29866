#include "tests/cuda_on_host/runtime/memory.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/cuda_on_host/runtime/device.h"
#include "tests/cuda_on_host/runtime/settings.h"
#include "tests/cuda_on_host/runtime/stream.h"

using namespace moetwin::emulated;

namespace {

constexpr size_t kAlign = 256;
struct Piece {
  size_t bytes;
  Place place;
  int device;
};
struct Memory {
  std::mutex mutex;
  std::map<const char*, Piece> pieces;
  std::map<int, size_t> used;
};
Memory& memory() {
  static Memory* m = new Memory;  // outlives every allocation
  return *m;
}

void* get(size_t bytes) {
  return std::aligned_alloc(kAlign, (bytes + kAlign - 1) / kAlign * kAlign);
}

// Forgets and frees an allocation of this kind.
bool drop(void* pointer, Place place) {
  {
    const std::lock_guard lock(memory().mutex);
    const auto it = memory().pieces.find(static_cast<char*>(pointer));
    if (it == memory().pieces.end() || it->second.place != place) return false;
    if (place == Place::device) memory().used[it->second.device] -= it->second.bytes;
    memory().pieces.erase(it);
  }
  std::free(pointer);
  return true;
}

}  // namespace

namespace moetwin::emulated {

Place place_of(const void* pointer, size_t bytes) {
  const auto* p = static_cast<const char*>(pointer);
  const std::lock_guard lock(memory().mutex);
  auto it = memory().pieces.upper_bound(p);
  if (it == memory().pieces.begin()) return Place::unknown;
  --it;
  return p + bytes <= it->first + it->second.bytes ? it->second.place : Place::unknown;
}

size_t device_bytes_in_use(int device) {
  const std::lock_guard lock(memory().mutex);
  return memory().used[device];
}

}  // namespace moetwin::emulated

cudaError_t cudaMalloc(void** pointer, size_t size) {
  const int device = current_device();
  if (const cudaError_t e = device_error(device)) return e;
  {
    const std::lock_guard lock(memory().mutex);
    size_t& used = memory().used[device];
    if (used + size > static_cast<size_t>(settings().memory_bytes))
      return cudaErrorMemoryAllocation;
    used += size;
  }
  *pointer = get(size);
  if (!*pointer) return cudaErrorMemoryAllocation;
  std::memset(*pointer, 0xff, size);  // NaN, whichever type is read
  const std::lock_guard lock(memory().mutex);
  memory().pieces[static_cast<char*>(*pointer)] = {size, Place::device, device};
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  if (!pointer) return cudaSuccess;
  cudaDeviceSynchronize();
  if (!drop(pointer, Place::device))
    return misuse(cudaErrorInvalidValue, "cudaFree of what cudaMalloc did not give");
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned) {
  *pointer = get(size);
  if (!*pointer) return cudaErrorMemoryAllocation;
  const std::lock_guard lock(memory().mutex);
  memory().pieces[static_cast<char*>(*pointer)] = {size, Place::pinned, -1};
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  if (pointer && !drop(pointer, Place::pinned))
    return misuse(cudaErrorInvalidValue, "cudaFreeHost of what cudaHostAlloc did not give");
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = static_cast<size_t>(settings().memory_bytes);
  *free = *total - device_bytes_in_use(current_device());
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const Place to = place_of(dst, count), from = place_of(src, count);
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyDefault)
    return misuse(cudaErrorNotSupported, "copies of this kind are not emulated");
  if (to != (to_device ? Place::device : Place::pinned))
    return misuse(cudaErrorInvalidValue,
                  to_device ? "a copy beyond one allocation of device memory"
                            : "an asynchronous copy into host memory that is not pinned");
  if (from != (from_device ? Place::device : Place::pinned))
    return misuse(cudaErrorInvalidValue,
                  from_device ? "a copy from beyond one allocation of device memory"
                              : "an asynchronous copy from host memory that is not pinned");
  return enqueue(stream, "copy", [=] { std::memcpy(dst, src, count); });
}

cudaError_t cudaMemsetAsync(void* pointer, int value, size_t count, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  if (place_of(pointer, count) != Place::device)
    return misuse(cudaErrorInvalidValue, "a memset beyond one allocation of device memory");
  return enqueue(stream, "memset", [=] { std::memset(pointer, value, count); });
}
