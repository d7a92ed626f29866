#pragma once
// A communicator and the work that its calls put on streams.

#include <nccl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_on_host/runtime/nccl_segment.h"

namespace moetwin::emulated {

/// Bytes to or from one rank.
struct Part {
  bool sends = false;
  int peer = 0;
  char* data = nullptr;  ///< only read from where it sends
  size_t bytes = 0;
  size_t done = 0;
};

/// What stays of a communicator while work of it is on streams.
class Channel {
 public:
  Channel(std::string name, int rank, int ranks)
      : segment(std::move(name), rank, ranks), rank_(rank), ranks_(ranks) {}

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// Moves all parts beside each other; false when the communicator is aborted meanwhile. Bytes
  /// that never come are waited for without end, as on a GPU; a peer's death is noted as an
  /// asynchronous error.
  bool move(std::vector<Part> parts);
  /// Calls of a communicator are done in the order of the calls, on whatever streams they are.
  bool wait_for_turn(uint64_t turn);
  void next_turn() { ++turn_; }

  Segment segment;
  std::atomic<bool> aborted{false};
  std::atomic<int> error{ncclSuccess};

 private:
  void watch_peers();
  int rank_, ranks_;
  std::atomic<uint64_t> turn_{0};
};

size_t size_of(ncclDataType_t type);

// Bodies of the collectives; false when aborted.
bool all_gather(Channel& channel, const char* send, char* recv, size_t bytes);
bool broadcast(Channel& channel, const char* send, char* recv, size_t bytes, int root);
/// Sums are taken in ascending rank, in f32 for 16-bit types.
bool all_reduce(Channel& channel, const char* send, char* recv, size_t count, ncclDataType_t type,
                ncclRedOp_t op);
bool reduce_scatter(Channel& channel, const char* send, char* recv, size_t count,
                    ncclDataType_t type, ncclRedOp_t op);

}  // namespace moetwin::emulated
