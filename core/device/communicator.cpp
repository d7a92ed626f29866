#include "core/device/communicator.h"

#include "core/base/error.h"

namespace moetwin {

const char* collective_name(CollectiveKind kind) {
  constexpr const char* kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all_v",
                                    "broadcast",  "send",       "recv",           "barrier"};
  return kNames[static_cast<int>(kind)];
}

void Communicator::number_and_start(CollectiveCall call, Stream stream) {
  call.sequence = ++sequence_;
  start(call, stream);
}

void Communicator::all_reduce(const Tensor& send, const Tensor& recv, ReduceOp op, Stream stream,
                              const char* purpose) {
  require(send.elements() == recv.elements() && send.dtype == recv.dtype,
          "all_reduce: equal operands");
  CollectiveCall call;
  call.kind = CollectiveKind::all_reduce;
  call.send = send;
  call.recv = recv;
  call.reduce = op;
  call.purpose = purpose;
  number_and_start(std::move(call), stream);
}

void Communicator::all_gather(const Tensor& send, const Tensor& recv, Stream stream,
                              const char* purpose) {
  require(send.elements() * size() == recv.elements() && send.dtype == recv.dtype,
          "all_gather: recv holds size() times send");
  CollectiveCall call;
  call.kind = CollectiveKind::all_gather;
  call.send = send;
  call.recv = recv;
  call.purpose = purpose;
  number_and_start(std::move(call), stream);
}

void Communicator::reduce_scatter(const Tensor& send, const Tensor& recv, ReduceOp op,
                                  Stream stream, const char* purpose) {
  require(recv.elements() * size() == send.elements() && send.dtype == recv.dtype,
          "reduce_scatter: send holds size() times recv");
  CollectiveCall call;
  call.kind = CollectiveKind::reduce_scatter;
  call.send = send;
  call.recv = recv;
  call.reduce = op;
  call.purpose = purpose;
  number_and_start(std::move(call), stream);
}

void Communicator::all_to_all_v(const Tensor& send, const Tensor& recv, HostSizes send_rows,
                                HostSizes send_begin, HostSizes recv_rows, HostSizes recv_begin,
                                Stream stream, const char* purpose) {
  const auto right = [this](const HostSizes& s) {
    return s && static_cast<int64_t>(s->size()) == size();
  };
  require(right(send_rows) && right(send_begin) && right(recv_rows) && right(recv_begin),
          "all_to_all_v: one count and one offset per member");
  require(send.dtype == recv.dtype, "all_to_all_v: equal dtypes");
  CollectiveCall call;
  call.kind = CollectiveKind::all_to_all_v;
  call.send = send;
  call.recv = recv;
  call.send_rows = std::move(send_rows);
  call.send_begin = std::move(send_begin);
  call.recv_rows = std::move(recv_rows);
  call.recv_begin = std::move(recv_begin);
  call.purpose = purpose;
  number_and_start(std::move(call), stream);
}

void Communicator::broadcast(const Tensor& buffer, int64_t root, Stream stream,
                             const char* purpose) {
  CollectiveCall call;
  call.kind = CollectiveKind::broadcast;
  call.send = call.recv = buffer;
  call.peer = root;
  call.purpose = purpose;
  number_and_start(std::move(call), stream);
}

void Communicator::send(const Tensor& buffer, int64_t to, Stream stream, const char* purpose) {
  CollectiveCall call;
  call.kind = CollectiveKind::send;
  call.send = buffer;
  call.peer = to;
  call.purpose = purpose;
  number_and_start(std::move(call), stream);
}

void Communicator::recv(const Tensor& buffer, int64_t from, Stream stream, const char* purpose) {
  CollectiveCall call;
  call.kind = CollectiveKind::recv;
  call.recv = buffer;
  call.peer = from;
  call.purpose = purpose;
  number_and_start(std::move(call), stream);
}

void Communicator::barrier(Stream stream) {
  CollectiveCall call;
  call.kind = CollectiveKind::barrier;
  call.purpose = "barrier";
  number_and_start(std::move(call), stream);
}

}  // namespace moetwin
