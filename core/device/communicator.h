#pragma once
// Collectives of one group on streams. Every call carries a fingerprint (sequence, kind, group,
// dtype, count) that the machine compares across ranks before data moves.

#include <cstdint>
#include <string>

#include "core/device/op.h"
#include "core/device/stream.h"
#include "core/topology/grid.h"

namespace moetwin {

enum class CollectiveKind : uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all_v,
  broadcast,
  send,
  recv,
  barrier
};
/// Whether a call has two members, of which one sends.
constexpr bool is_pair(CollectiveKind kind) {
  return kind == CollectiveKind::send || kind == CollectiveKind::recv;
}
const char* collective_name(CollectiveKind kind);
/// Whether a call on a group of this name is an exchange of tokens: under context parallelism keys
/// and values go the same way.
inline bool is_token_exchange(CollectiveKind kind, const std::string& group) {
  return kind == CollectiveKind::all_to_all_v && group != "cp";
}
enum class ReduceOp : uint8_t { sum, max, min };

struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::barrier;
  Tensor send, recv;
  ReduceOp reduce = ReduceOp::sum;
  int64_t peer = 0;  ///< index in the group: root of a broadcast, partner of send and recv
  /// all_to_all_v: rows (leading extent) per member and where each member's rows begin. Two members
  /// may be sent the same rows.
  HostSizes send_rows, send_begin, recv_rows, recv_begin;
  const char* purpose = "";  ///< a string literal for reports: "dispatch", "gradients"
  uint64_t sequence = 0;     ///< set by the communicator
};

/// One per group and stream user; made by all members in the same order. Sums are taken in
/// ascending group rank, in f32 for types up to 32 bits and f64 for f64.
class Communicator {
 public:
  Communicator(Group group, int64_t rank_in_group, std::string name)
      : group_(group), rank_(rank_in_group), name_(std::move(name)) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int64_t rank() const { return rank_; }
  int64_t size() const { return group_.size(); }
  const Group& group() const { return group_; }
  const std::string& name() const { return name_; }
  uint64_t calls() const { return sequence_; }

  /// recv = sum over members of send; same shapes; may be in place.
  void all_reduce(const Tensor& send, const Tensor& recv, ReduceOp op, Stream stream,
                  const char* purpose);
  /// recv = concatenation of every member's send; send may be its own part of recv.
  void all_gather(const Tensor& send, const Tensor& recv, Stream stream, const char* purpose);
  /// recv = own part of the reduction of send; recv may be that part of send.
  void reduce_scatter(const Tensor& send, const Tensor& recv, ReduceOp op, Stream stream,
                      const char* purpose);
  /// Rows of `send` to every member, rows from every member into `recv`; zero rows are legal and
  /// still take part.
  void all_to_all_v(const Tensor& send, const Tensor& recv, HostSizes send_rows,
                    HostSizes send_begin, HostSizes recv_rows, HostSizes recv_begin, Stream stream,
                    const char* purpose);
  void broadcast(const Tensor& buffer, int64_t root, Stream stream, const char* purpose);
  void send(const Tensor& buffer, int64_t to, Stream stream, const char* purpose);
  void recv(const Tensor& buffer, int64_t from, Stream stream, const char* purpose);
  void barrier(Stream stream);

 protected:
  virtual void start(const CollectiveCall& call, Stream stream) = 0;
  friend class CheckedCommunicator;

 private:
  void number_and_start(CollectiveCall call, Stream stream);
  Group group_;
  int64_t rank_;
  std::string name_;
  uint64_t sequence_ = 0;
};

}  // namespace moetwin
