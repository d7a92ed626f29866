#pragma once
// What a collective does to its members' memory, whatever algorithm is being timed: sums in
// ascending group rank, in f32 for types up to 32 bits, f64 for f64, i64 for integers.

#include <memory>
#include <vector>

#include "core/device/communicator.h"

namespace moetwin {

/// A tensor whose memory is kept alive without keeping its Buffer (whose end gives memory back to
/// the allocator).
struct HeldTensor {
  TensorView view;
  std::shared_ptr<void> keep;
  HeldTensor() = default;
  explicit HeldTensor(const Tensor& tensor)
      : view{tensor.data(), tensor.shape, tensor.dtype},
        keep(tensor.buffer ? tensor.buffer->storage : nullptr) {}
};

/// One member's side of a collective.
struct MemberData {
  HeldTensor send, recv;
  HostSizes send_rows, send_begin, recv_rows, recv_begin;
};

/// Moves and reduces the bytes. `root`: group rank of a broadcast's source, or of the sender of a
/// send.
void move_data(CollectiveKind kind, ReduceOp op, int64_t root, std::vector<MemberData>& members);

}  // namespace moetwin
