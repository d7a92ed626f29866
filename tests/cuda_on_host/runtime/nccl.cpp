#include <nccl.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/cuda_on_host/runtime/memory.h"
#include "tests/cuda_on_host/runtime/nccl_comm.h"
#include "tests/cuda_on_host/runtime/stream.h"

using namespace moetwin::emulated;

struct ncclComm {
  std::shared_ptr<Channel> channel;
  bool blocking = true;
  bool joined = false;
  uint64_t calls = 0, turns = 0;
  std::string last_error;
  /// A call of a non-blocking communicator may be taken up only later, when its state is asked for.
  std::function<ncclResult_t()> deferred;
};

namespace {

// Every so many calls of a non-blocking communicator say ncclInProgress.
constexpr uint64_t kLate = 5;

struct Call {
  ncclComm_t comm;
  cudaStream_t stream;
  std::function<bool(Channel&)> body;  ///< a collective; empty: the part
  Part part;
};
struct Group {
  int depth = 0;
  std::vector<Call> calls;
};
thread_local Group t_group;

ncclResult_t fail(ncclComm_t comm, ncclResult_t result, const std::string& why) {
  std::fprintf(stderr, "emulated NCCL: %s\n", why.c_str());
  if (comm) comm->last_error = why;
  return result;
}

// Puts the calls of one communicator and stream on that stream.
ncclResult_t put(ncclComm_t comm, cudaStream_t stream, std::vector<Call> calls) {
  const uint64_t turn = comm->turns++;
  const auto work = [channel = comm->channel, turn, calls = std::move(calls)] {
    if (!channel->wait_for_turn(turn)) return;
    std::vector<Part> parts;
    for (const Call& call : calls) {
      if (!call.body)
        parts.push_back(call.part);
      else if (!call.body(*channel))
        return;
    }
    if (channel->move(std::move(parts))) channel->next_turn();
  };
  return enqueue(stream, "nccl", work) ? ncclUnhandledCudaError : ncclSuccess;
}

ncclResult_t start(std::vector<Call> calls) {
  std::vector<std::pair<ncclComm_t, cudaStream_t>> order;
  std::map<std::pair<ncclComm_t, cudaStream_t>, std::vector<Call>> by_stream;
  for (Call& call : calls) {
    const auto key = std::make_pair(call.comm, call.stream);
    if (by_stream[key].empty()) order.push_back(key);
    by_stream[key].push_back(std::move(call));
  }
  ncclResult_t result = ncclSuccess;
  for (const auto& key : order) {
    const auto comm = key.first;
    if (!comm->blocking && ++comm->calls % kLate == 1) {
      comm->deferred = [comm, stream = key.second, mine = std::move(by_stream[key])]() mutable {
        return put(comm, stream, std::move(mine));
      };
      result = ncclInProgress;
    } else if (const ncclResult_t r = put(comm, key.second, std::move(by_stream[key]))) {
      return r;
    }
  }
  return result;
}

ncclResult_t call(ncclComm_t comm, cudaStream_t stream, const char* what, const void* send,
                  size_t send_bytes, const void* recv, size_t recv_bytes,
                  std::function<bool(Channel&)> body, Part part = {}) {
  if (!comm || !comm->joined || comm->deferred)
    return fail(comm, ncclInvalidUsage,
                std::string(what) + ": the communicator is still in progress");
  if (comm->channel->aborted) return fail(comm, ncclInvalidUsage, "the communicator was aborted");
  if ((send_bytes && place_of(send, send_bytes) != Place::device) ||
      (recv_bytes && place_of(recv, recv_bytes) != Place::device))
    return fail(comm, ncclInvalidArgument, std::string(what) + ": a buffer is not device memory");
  t_group.calls.push_back({comm, stream, std::move(body), part});
  if (t_group.depth > 0) return ncclSuccess;
  return start(std::exchange(t_group.calls, {}));
}

// ncclSuccess once joined, ncclInProgress before.
ncclResult_t join(ncclComm_t comm) {
  try {
    comm->joined = comm->joined || comm->channel->segment.join();
  } catch (const std::exception& error) {
    comm->channel->error = ncclInvalidArgument;
    return fail(comm, ncclInvalidArgument, error.what());
  }
  return comm->joined ? ncclSuccess : ncclInProgress;
}

bool reducible(ncclRedOp_t op) { return op == ncclSum || op == ncclMax || op == ncclMin; }

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof *id);
  const std::string name = new_segment_name();
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (nranks < 1 || nranks > kMostRanks || rank < 0 || rank >= nranks)
    return fail(nullptr, ncclInvalidArgument, "a rank out of range");
  auto* made = new ncclComm;
  made->channel = std::make_shared<Channel>(id.internal, rank, nranks);
  made->blocking = !config || config->blocking != 0;
  *comm = made;
  ncclResult_t result = join(made);
  while (made->blocking && result == ncclInProgress) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    result = join(made);
  }
  return made->blocking ? result : ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = static_cast<ncclResult_t>(comm->channel->error.load());
  if (*error == ncclSuccess && !comm->joined) *error = join(comm);
  if (*error == ncclSuccess && comm->deferred) *error = std::exchange(comm->deferred, {})();
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->channel->segment.leave();
  return comm->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  comm->channel->segment.leave();
  delete comm;  // work that is still on a stream keeps the channel
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->channel->aborted = true;
  delete comm;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) { return comm ? comm->last_error.c_str() : ""; }

ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  if (!reducible(op)) return fail(comm, ncclInvalidArgument, "a reduction that is not emulated");
  const size_t bytes = count * size_of(type);
  return call(comm, stream, "ncclAllReduce", send, bytes, recv, bytes, [=](Channel& channel) {
    return all_reduce(channel, static_cast<const char*>(send), static_cast<char*>(recv), count,
                      type, op);
  });
}

ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * size_of(type);
  return call(comm, stream, "ncclBroadcast", recv, bytes, recv, bytes, [=](Channel& channel) {
    return broadcast(channel, static_cast<const char*>(send), static_cast<char*>(recv), bytes,
                     root);
  });
}

ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  if (!reducible(op)) return fail(comm, ncclInvalidArgument, "a reduction that is not emulated");
  if (!comm) return ncclInvalidArgument;
  const size_t bytes = count * size_of(type);
  return call(comm, stream, "ncclReduceScatter", send,
              bytes * static_cast<size_t>(comm->channel->ranks()), recv, bytes,
              [=](Channel& channel) {
                return reduce_scatter(channel, static_cast<const char*>(send),
                                      static_cast<char*>(recv), count, type, op);
              });
}

ncclResult_t ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  if (!comm) return ncclInvalidArgument;
  const size_t bytes = count * size_of(type);
  return call(comm, stream, "ncclAllGather", send, bytes, recv,
              bytes * static_cast<size_t>(comm->channel->ranks()), [=](Channel& channel) {
                return all_gather(channel, static_cast<const char*>(send), static_cast<char*>(recv),
                                  bytes);
              });
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * size_of(type);
  return call(comm, stream, "ncclSend", send, bytes, nullptr, 0, nullptr,
              {true, peer, const_cast<char*>(static_cast<const char*>(send)), bytes, 0});
}

ncclResult_t ncclRecv(void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const size_t bytes = count * size_of(type);
  return call(comm, stream, "ncclRecv", nullptr, 0, recv, bytes, nullptr,
              {false, peer, static_cast<char*>(recv), bytes, 0});
}

ncclResult_t ncclGroupStart() {
  ++t_group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (t_group.depth == 0) return ncclInvalidUsage;
  if (--t_group.depth > 0) return ncclSuccess;
  return start(std::exchange(t_group.calls, {}));
}
