#pragma once
// Pinned host memory between the program's memory and the device's. Asynchronous copies need it,
// and the caller of write() may reuse its memory at once.

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "backends/cuda/runtime/events.h"

namespace moetwin {

class Staging {
 public:
  explicit Staging(EventPool& events) : events_(events) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Enqueues copies of `bytes` from `host`, which may be reused when this returns. Waits where all
  /// of the staging memory is in flight.
  void to_device(void* device, const void* host, size_t bytes, cudaStream_t stream);
  /// Copies to `host` after the work on the stream and waits for it.
  void to_host(void* host, const void* device, size_t bytes, cudaStream_t stream);

 private:
  static constexpr size_t kPiece = size_t{4} << 20;
  static constexpr size_t kPieces = 4;
  struct Piece {
    void* memory = nullptr;
    std::shared_ptr<CUevent_st> free;  ///< the copy that used it last; null: none
  };
  Piece& next();
  EventPool& events_;
  std::vector<Piece> pieces_;
  size_t last_ = 0;
};

}  // namespace moetwin
