#include "backends/cuda/runtime/self_test.h"

#include <fmt/format.h>

#include <algorithm>

#include "backends/cuda/runtime/check.h"

namespace moetwin {
namespace {

constexpr const char* kName = "start-up self-test";
constexpr int64_t kLeast = 1024, kFactor = 32;

Tensor on_device(int64_t elements) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, static_cast<size_t>(elements) * sizeof(int32_t)),
             "memory of the start-up self-test");
  Tensor tensor;
  tensor.shape = {elements};
  tensor.dtype = DType::i32;
  tensor.buffer = std::make_shared<Buffer>();
  tensor.buffer->storage = std::shared_ptr<void>(memory, [](void* m) { cudaFree(m); });
  return tensor;
}

int32_t value_of(int64_t from, int64_t to, int64_t i) {
  return static_cast<int32_t>((from * 1'000'003 + to * 10'007 + i) % 2'147'483'647);
}

/// The group under the watchdog's eyes, and what its calls need.
class Exchange {
 public:
  explicit Exchange(CudaBackend& backend)
      : backend_(backend),
        me_(backend.properties().rank),
        world_(backend.properties().world),
        staging_(events_),
        group_(backend.job(), backend.log(), everyone(), me_, kName, kName) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    backend_.add(group_);
  }
  ~Exchange() {
    backend_.forget(group_);
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void run(int64_t bytes) {
    const int64_t share =
        std::max<int64_t>(1, bytes / static_cast<int64_t>(sizeof(int32_t)) / world_);
    const auto equal = [&](int64_t each) {
      return std::make_shared<const std::vector<int64_t>>(static_cast<size_t>(world_), each);
    };
    std::vector<int64_t> begin;
    std::vector<int32_t> values;
    for (int64_t to = 0; to < world_; ++to) {
      begin.push_back(to * share);
      for (int64_t i = 0; i < share; ++i) values.push_back(value_of(me_, to, i));
    }
    CollectiveCall call;
    call.kind = CollectiveKind::all_to_all_v;
    call.send = on_device(world_ * share);
    call.recv = on_device(world_ * share);
    call.send_rows = call.recv_rows = equal(share);
    call.send_begin = call.recv_begin =
        std::make_shared<const std::vector<int64_t>>(std::move(begin));
    call.purpose = kName;
    const size_t all = values.size() * sizeof(int32_t);
    staging_.to_device(call.send.data(), values.data(), all, stream_);
    backend_.aside(group_, call, events_, stream_);
    staging_.to_host(values.data(), call.recv.data(), all, stream_);
    backend_.job().check();
    for (size_t at = 0; at < values.size(); ++at) {
      const auto place = static_cast<int64_t>(at);
      if (values[at] != value_of(place / share, me_, place % share))
        throw Error(ErrorClass::fault,
                    fmt::format("{}: of {} bytes from rank {}, rank {} got other values from "
                                "element {} on",
                                kName, share * 4, place / share, me_, place % share));
    }
  }

 private:
  Group everyone() const {
    Group group;
    group.n1 = world_;
    return group;
  }
  CudaBackend& backend_;
  const int64_t me_, world_;
  EventPool events_;
  Staging staging_;
  NcclGroup group_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

void test_exchange(CudaBackend& backend, int64_t most) {
  if (backend.properties().world == 1 || most <= 0) return;
  Exchange exchange(backend);
  for (int64_t bytes = kLeast; bytes < most; bytes *= kFactor) exchange.run(bytes);
  exchange.run(most);
}

}  // namespace moetwin
