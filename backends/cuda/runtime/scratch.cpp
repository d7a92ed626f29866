#include "backends/cuda/runtime/scratch.h"

#include <algorithm>

#include "backends/cuda/runtime/check.h"

namespace moetwin {

namespace {
constexpr int64_t kFirstBytes = int64_t{4} << 20;
constexpr int64_t kAlign = 256;
}  // namespace

StreamScratch::~StreamScratch() {
  for (const Block& b : blocks_) cudaFree(b.memory);
}

void* StreamScratch::take(int64_t bytes) {
  const int64_t wanted = (std::max<int64_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
  if (blocks_.empty() || used_ + wanted > blocks_.back().bytes) {
    // What was taken from the old block stays valid: kernels that are enqueued use it.
    const int64_t size = std::max({wanted, kFirstBytes, 2 * reserved_});
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, static_cast<size_t>(size)),
               fmt::format("scratch memory of {} bytes", size).c_str());
    blocks_.push_back({memory, size});
    reserved_ += size;
    used_ = 0;
  }
  void* taken = static_cast<char*>(blocks_.back().memory) + used_;
  used_ += wanted;
  return taken;
}

}  // namespace moetwin
