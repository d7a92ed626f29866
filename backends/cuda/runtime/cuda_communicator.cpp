#include "backends/cuda/runtime/cuda_communicator.h"

#include <fmt/format.h>

#include "backends/cuda/runtime/cuda_backend.h"

namespace moetwin {
namespace {

int64_t row_elements(const Tensor& tensor) {
  int64_t elements = 1;
  for (int d = 1; d < tensor.shape.rank; ++d) elements *= tensor.shape[d];
  return elements;
}

// What all members have to agree on, in words.
std::string fingerprint(const CollectiveCall& call) {
  constexpr const char* kReduce[] = {"sum", "max", "min"};
  const char* name = collective_name(call.kind);
  switch (call.kind) {
    case CollectiveKind::all_reduce:
      return fmt::format("{}({} of {} x {})", name, kReduce[static_cast<int>(call.reduce)],
                         call.send.elements(), dtype_name(call.send.dtype));
    case CollectiveKind::reduce_scatter:
      return fmt::format("{}({} of {} x {})", name, kReduce[static_cast<int>(call.reduce)],
                         call.recv.elements(), dtype_name(call.recv.dtype));
    case CollectiveKind::all_gather:
      return fmt::format("{}({} x {})", name, call.send.elements(), dtype_name(call.send.dtype));
    case CollectiveKind::broadcast:
      return fmt::format("{}({} x {} from member {})", name, call.send.elements(),
                         dtype_name(call.send.dtype), call.peer);
    case CollectiveKind::all_to_all_v:
      return fmt::format("{}(rows of {} x {})", name, row_elements(call.send),
                         dtype_name(call.send.dtype));
    default:
      return name;
  }
}

}  // namespace

CudaCommunicator::CudaCommunicator(const Group& group, int64_t rank_in_group,
                                   const std::string& name, const std::string& label,
                                   const std::string& key, CudaBackend& backend)
    : Communicator(group, rank_in_group, name),
      backend_(backend),
      nccl_(backend.job(), backend.log(), group, rank_in_group, label, key) {
  backend_.add(nccl_);
}

CudaCommunicator::~CudaCommunicator() { backend_.forget(nccl_); }

void CudaCommunicator::start(const CollectiveCall& call, Stream stream) {
  backend_.collective(nccl_, call, stream);
}

void compare_before(Job& job, NcclGroup& group, const CollectiveCall& call) {
  const Group& members = group.group();
  const int64_t me = members.member(group.rank());
  Store& store = job.store();
  if (call.kind == CollectiveKind::send || call.kind == CollectiveKind::recv) {
    const bool sends = call.kind == CollectiveKind::send;
    const Tensor& data = sends ? call.send : call.recv;
    const int64_t from = sends ? me : members.member(call.peer),
                  to = sends ? members.member(call.peer) : me;
    store.compare_pair(fmt::format("transfer {} from rank {} to rank {} in group {}",
                                   group.next_transfer(call.peer, sends), from, to, group.name()),
                       me, fmt::format("{} x {}", data.elements(), dtype_name(data.dtype)));
    return;
  }
  const std::string name = fmt::format("call {} of group {}", group.next_compared(), group.key());
  store.compare(name, me, members.members(),
                fmt::format("{} \"{}\"", fingerprint(call), call.purpose),
                job.settings().timeout_seconds);
  if (call.kind != CollectiveKind::all_to_all_v) return;
  for (int64_t i = 0; i < members.size(); ++i) {
    const int64_t other = members.member(i);
    const auto index = static_cast<size_t>(i);
    if (other == me) continue;
    const auto rows = [&](int64_t from, int64_t to) {
      return fmt::format("rows from rank {} to rank {} in {}", from, to, name);
    };
    store.compare_pair(rows(me, other), me, std::to_string((*call.send_rows)[index]));
    store.compare_pair(rows(other, me), me, std::to_string((*call.recv_rows)[index]));
  }
}

}  // namespace moetwin
