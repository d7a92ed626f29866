#include "backends/cuda/runtime/nccl_group.h"

#include <chrono>
#include <cstring>
#include <exception>
#include <thread>

#include "backends/cuda/runtime/check.h"

namespace moetwin {
namespace {

void pause() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

ncclRedOp_t nccl_op(ReduceOp op) {
  return op == ReduceOp::sum ? ncclSum : op == ReduceOp::max ? ncclMax : ncclMin;
}

int64_t row_elements(const Tensor& tensor) {
  int64_t elements = 1;
  for (int d = 1; d < tensor.shape.rank; ++d) elements *= tensor.shape[d];
  return elements;
}

char* row(const Tensor& tensor, int64_t index) {
  return static_cast<char*>(tensor.data()) +
         index * row_elements(tensor) * dtype_size(tensor.dtype);
}

}  // namespace

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::f64:
      return ncclFloat64;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
  }
  return ncclUint8;
}

NcclGroup::NcclGroup(Job& job, CallLog& log, const Group& group, int64_t rank,
                     const std::string& name, const std::string& key)
    : job_(job), log_(log), group_(group), rank_(rank), name_(name), key_(key) {
  log_index_ = log_.add_communicator(name, group.members());
  check_cuda(cudaMalloc(&barrier_, sizeof(int32_t)), "memory of a barrier");
  try {
    make();
  } catch (...) {
    if (comm_) ncclCommAbort(comm_);
    cudaFree(barrier_);
    throw;
  }
  log_.created(log_index_);
}

void NcclGroup::make() {
  const double begin = job_.now(), limit = job_.settings().timeout_seconds;
  ncclUniqueId id;
  const std::string id_key = "nccl id of " + key_;
  std::string bytes;
  if (rank_ == 0) {
    check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId", nullptr);
    job_.store().set(id_key, std::string(id.internal, sizeof id.internal));
  } else {
    try {
      bytes = job_.store().get(id_key, limit);
    } catch (const Error&) {
      job_.check();
    }
    if (!bytes.empty()) std::memcpy(id.internal, bytes.data(), sizeof id.internal);
  }
  bool ready = false;
  if (rank_ == 0 || !bytes.empty()) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t result = ncclCommInitRankConfig(&comm_, static_cast<int>(group_.size()), id,
                                                 static_cast<int>(rank_), &config);
    check_nccl(result, "ncclCommInitRankConfig", comm_);
    for (;;) {
      check_nccl(ncclCommGetAsyncError(comm_, &result), "ncclCommGetAsyncError", comm_);
      check_nccl(result, fmt::format("making the communicator of group {}", name_).c_str(), comm_);
      ready = result == ncclSuccess;
      if (ready || job_.now() - begin > limit) break;
      job_.check();
      pause();
    }
  }
  if (ready) return;
  Stuck stuck;
  stuck.rank = log_.rank();
  stuck.group = name_;
  stuck.members = group_.members();
  stuck.seconds = job_.now() - begin;
  stuck.limit = limit;
  job_.fail(describe_stuck(stuck, job_.fresh_states()));
  job_.failure()->raise();
}

NcclGroup::~NcclGroup() {
  {
    const std::lock_guard lock(mutex_);
    if (comm_ && (job_.failed() || std::uncaught_exceptions() > 0)) {
      ncclCommAbort(comm_);
      comm_ = nullptr;
    }
  }
  if (comm_) {
    ncclResult_t result = ncclCommFinalize(comm_);
    const double begin = job_.now();
    while (result == ncclInProgress && !job_.failed() &&
           job_.now() - begin < job_.settings().timeout_seconds) {
      if (ncclCommGetAsyncError(comm_, &result) != ncclSuccess) result = ncclInternalError;
      if (result == ncclInProgress) pause();
    }
    if (result == ncclSuccess)
      ncclCommDestroy(comm_);
    else
      ncclCommAbort(comm_);
  }
  cudaFree(barrier_);
  for (const Tracked& t : tracked_) log_.ended(t.logged, job_.now());
}

void NcclGroup::aborted() const {
  job_.check();
  throw Error(ErrorClass::fault, fmt::format("the communicator of group {} was aborted", name_));
}

// A call of a non-blocking communicator is on the stream only once NCCL says so.
void NcclGroup::settle(ncclResult_t result, const char* what) {
  const double begin = job_.now();
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) aborted();
      if (result == ncclInProgress)
        check_nccl(ncclCommGetAsyncError(comm_, &result), "ncclCommGetAsyncError", comm_);
      check_nccl(result, fmt::format("{} of group {}", what, name_).c_str(), comm_);
    }
    if (result == ncclSuccess) return;
    // The watchdog sees the call too and says more.
    if (job_.now() - begin > job_.settings().timeout_seconds + job_.settings().grace_seconds)
      throw Error(ErrorClass::fault,
                  fmt::format("rank {}: NCCL has not taken {} of group {} in {:.3g} s", log_.rank(),
                              what, name_, job_.now() - begin));
    job_.check();
    pause();
  }
}

void NcclGroup::all_to_all(const CollectiveCall& call, cudaStream_t stream) {
  const int64_t send_row = row_elements(call.send), recv_row = row_elements(call.recv);
  const ncclDataType_t type = nccl_type(call.send.dtype);
  for (size_t i = 0; i < static_cast<size_t>(group_.size()); ++i) {
    const int64_t out = (*call.send_rows)[i], in = (*call.recv_rows)[i];
    const auto peer = static_cast<int>(i);
    if (peer == rank_) {
      if (out > 0)
        check_cuda(cudaMemcpyAsync(
                       row(call.recv, (*call.recv_begin)[i]), row(call.send, (*call.send_begin)[i]),
                       static_cast<size_t>(out * send_row * dtype_size(call.send.dtype)),
                       cudaMemcpyDeviceToDevice, stream),
                   "a rank's rows to itself");
      continue;
    }
    // Both sides know the counts, so a pair without rows is left out by both.
    if (out > 0)
      check_nccl(ncclSend(row(call.send, (*call.send_begin)[i]),
                          static_cast<size_t>(out * send_row), type, peer, comm_, stream),
                 "ncclSend", comm_);
    if (in > 0)
      check_nccl(ncclRecv(row(call.recv, (*call.recv_begin)[i]), static_cast<size_t>(in * recv_row),
                          type, peer, comm_, stream),
                 "ncclRecv", comm_);
  }
}

void NcclGroup::enqueue(const CollectiveCall& call, cudaStream_t stream) {
  ncclResult_t result = ncclSuccess;
  const void* send = call.send.data();
  void* recv = call.recv.data();
  const auto count = static_cast<size_t>(call.send.defined() ? call.send.elements() : 0);
  const auto type = nccl_type(call.send.defined() ? call.send.dtype : call.recv.dtype);
  const auto peer = static_cast<int>(call.peer);
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) aborted();
    switch (call.kind) {
      case CollectiveKind::all_reduce:
        result = ncclAllReduce(send, recv, count, type, nccl_op(call.reduce), comm_, stream);
        break;
      case CollectiveKind::all_gather:
        result = ncclAllGather(send, recv, count, type, comm_, stream);
        break;
      case CollectiveKind::reduce_scatter:
        result = ncclReduceScatter(send, recv, static_cast<size_t>(call.recv.elements()), type,
                                   nccl_op(call.reduce), comm_, stream);
        break;
      case CollectiveKind::broadcast:
        result = ncclBroadcast(send, recv, count, type, peer, comm_, stream);
        break;
      case CollectiveKind::send:
        result = ncclSend(send, count, type, peer, comm_, stream);
        break;
      case CollectiveKind::recv:
        result =
            ncclRecv(recv, static_cast<size_t>(call.recv.elements()), type, peer, comm_, stream);
        break;
      case CollectiveKind::all_to_all_v:
        check_nccl(ncclGroupStart(), "ncclGroupStart", comm_);
        all_to_all(call, stream);
        result = ncclGroupEnd();
        break;
      case CollectiveKind::barrier:
        check_cuda(cudaMemsetAsync(barrier_, 0, sizeof(int32_t), stream), "barrier");
        result = ncclAllReduce(barrier_, barrier_, 1, ncclInt32, ncclMax, comm_, stream);
        break;
    }
  }
  settle(result, collective_name(call.kind));
}

void NcclGroup::smallest(double* device, int64_t count, cudaStream_t stream) {
  ncclResult_t result;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) aborted();
    result = ncclAllReduce(device, device, static_cast<size_t>(count), ncclFloat64, ncclMin, comm_,
                           stream);
  }
  settle(result, "the exchange of durations");
}

void NcclGroup::track(uint64_t logged, std::shared_ptr<CUevent_st> start,
                      std::shared_ptr<CUevent_st> end) {
  const std::lock_guard lock(tracked_mutex_);
  tracked_.push_back({logged, std::move(start), std::move(end)});
}

void NcclGroup::tracked_end() {
  const std::lock_guard lock(tracked_mutex_);
  if (!tracked_.empty()) tracked_.back().end_recorded = true;
}

std::optional<std::string> NcclGroup::look(double now) {
  {
    const std::lock_guard lock(tracked_mutex_);
    // Calls of one communicator are done in their order.
    while (!tracked_.empty()) {
      Tracked& t = tracked_.front();
      if (!t.started && cudaEventQuery(t.start.get()) == cudaSuccess) {
        t.started = true;
        log_.started(t.logged, now);
      }
      if (!t.started || !t.end_recorded || cudaEventQuery(t.end.get()) != cudaSuccess) break;
      log_.ended(t.logged, now);
      tracked_.pop_front();
    }
  }
  const std::unique_lock lock(mutex_, std::try_to_lock);  // its thread is in NCCL: next time
  if (!lock || !comm_ || aborted_) return std::nullopt;
  ncclResult_t result = ncclSuccess;
  if (ncclCommGetAsyncError(comm_, &result) != ncclSuccess || result == ncclSuccess ||
      result == ncclInProgress)
    return std::nullopt;
  const char* last = ncclGetLastError(comm_);
  return fmt::format("NCCL reports for group {}: {}{}{}", name_, ncclGetErrorString(result),
                     last && *last ? ": " : "", last ? last : "");
}

void NcclGroup::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  if (comm_) ncclCommAbort(comm_);
  comm_ = nullptr;
}

}  // namespace moetwin
