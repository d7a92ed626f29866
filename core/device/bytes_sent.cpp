#include "core/device/bytes_sent.h"

namespace moetwin {
namespace {

int64_t row_bytes(const Tensor& tensor) {
  int64_t bytes = dtype_size(tensor.dtype);
  for (int d = 1; d < tensor.shape.rank; ++d) bytes *= tensor.shape[d];
  return bytes;
}

}  // namespace

int64_t bytes_sent(const CollectiveCall& call, int64_t rank, int64_t size) {
  const auto in_a_ring = [size](int64_t rounds, int64_t bytes) {
    return bytes / size * rounds * (size - 1) + bytes % size * rounds * (size - 1) / size;
  };
  switch (call.kind) {
    case CollectiveKind::all_reduce:
      return in_a_ring(2, call.send.bytes());
    case CollectiveKind::all_gather:
      return in_a_ring(1, call.recv.bytes());
    case CollectiveKind::reduce_scatter:
      return in_a_ring(1, call.send.bytes());
    case CollectiveKind::broadcast:  // the chain's last member sends nothing
      return (rank + 1) % size == call.peer ? 0 : call.send.bytes();
    case CollectiveKind::send:
      return call.send.bytes();
    case CollectiveKind::all_to_all_v: {
      int64_t rows = 0;
      for (int64_t i = 0; i < size; ++i)
        if (i != rank) rows += (*call.send_rows)[static_cast<size_t>(i)];
      return rows * row_bytes(call.send);
    }
    case CollectiveKind::recv:
    case CollectiveKind::barrier:
      return 0;
  }
  return 0;
}

}  // namespace moetwin
