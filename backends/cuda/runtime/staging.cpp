#include "backends/cuda/runtime/staging.h"

#include <algorithm>
#include <cstring>

#include "backends/cuda/runtime/check.h"

namespace moetwin {

Staging::~Staging() {
  for (Piece& p : pieces_) {
    if (p.free) cudaEventSynchronize(p.free.get());
    cudaFreeHost(p.memory);
  }
}

Staging::Piece& Staging::next() {
  if (pieces_.size() < kPieces) {
    Piece piece;
    check_cuda(cudaHostAlloc(&piece.memory, kPiece, cudaHostAllocDefault), "cudaHostAlloc");
    pieces_.push_back(piece);
    return pieces_.back();
  }
  last_ = (last_ + 1) % kPieces;
  Piece& piece = pieces_[last_];
  if (piece.free) check_cuda(cudaEventSynchronize(piece.free.get()), "cudaEventSynchronize");
  return piece;
}

void Staging::to_device(void* device, const void* host, size_t bytes, cudaStream_t stream) {
  for (size_t done = 0; done < bytes;) {
    const size_t now = std::min(kPiece, bytes - done);
    Piece& piece = next();
    std::memcpy(piece.memory, static_cast<const char*>(host) + done, now);
    check_cuda(cudaMemcpyAsync(static_cast<char*>(device) + done, piece.memory, now,
                               cudaMemcpyHostToDevice, stream),
               "copy to the device");
    if (!piece.free) piece.free = events_.get();
    check_cuda(cudaEventRecord(piece.free.get(), stream), "cudaEventRecord");
    done += now;
  }
}

void Staging::to_host(void* host, const void* device, size_t bytes, cudaStream_t stream) {
  for (size_t done = 0; done < bytes;) {
    const size_t now = std::min(kPiece, bytes - done);
    Piece& piece = next();
    check_cuda(cudaMemcpyAsync(piece.memory, static_cast<const char*>(device) + done, now,
                               cudaMemcpyDeviceToHost, stream),
               "copy to the host");
    check_cuda(cudaStreamSynchronize(stream), "copy to the host");
    std::memcpy(static_cast<char*>(host) + done, piece.memory, now);
    done += now;
  }
}

}  // namespace moetwin
