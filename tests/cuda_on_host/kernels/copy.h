#pragma once
// Copies that arrive only when waited for: until then the destination holds NaN.

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/cuda_on_host/kernels/block.h"

namespace moetwin {
namespace emulated {
struct PendingCopy {
  int thread;
  void* to;
  const void* from;
};
inline thread_local std::vector<PendingCopy> pending_copies;
}  // namespace emulated

/// 16 bytes from global to shared memory, both aligned to 16.
inline void copy_async(void* shared, const void* global) {
  if (reinterpret_cast<uintptr_t>(shared) % 16 != 0 ||
      reinterpret_cast<uintptr_t>(global) % 16 != 0)
    emulated::fail("copies 16 bytes between addresses that are not aligned to 16");
  std::memset(shared, 0xff, 16);
  emulated::pending_copies.push_back({emulated::running->thread, shared, global});
}
/// The calling thread's copies so far have arrived; others see them after a sync_block.
inline void copy_async_wait() {
  std::vector<emulated::PendingCopy>& all = emulated::pending_copies;
  size_t kept = 0;
  for (const emulated::PendingCopy& copy : all)
    if (copy.thread == emulated::running->thread)
      std::memcpy(copy.to, copy.from, 16);
    else
      all[kept++] = copy;
  all.resize(kept);
}

}  // namespace moetwin
