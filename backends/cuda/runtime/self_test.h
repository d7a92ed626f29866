#pragma once
// Whether the ranks can exchange data at all, before anything is trained.

#include <cstdint>

#include "backends/cuda/runtime/cuda_backend.h"

namespace moetwin {

/// All ranks send each other a share of 1 KiB, 32 KiB and so on up to `most` bytes a rank, and look
/// at what arrives: unusual settings of NCCL and broken links hang, or spoil data, above some size
/// only. A hang is the watchdog's; wrong data throws Error(fault) naming both ranks.
void test_exchange(CudaBackend& backend, int64_t most);

}  // namespace moetwin
