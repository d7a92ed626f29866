// The emulated NCCL between threads: sums of every type, what a non-blocking communicator says, and
// abort. Between processes it is tested through the backend.
#include <nccl.h>

#include <Eigen/Core>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace {

struct Rank {
  int rank = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;

  // Waits until the communicator says that it has taken the call.
  ncclResult_t settle(ncclResult_t result) const {
    while (result == ncclInProgress) ncclCommGetAsyncError(comm, &result);
    return result;
  }
};

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

// Assertions are made by this thread only: Catch2 is not for threads.
void with_ranks(int ranks, const std::function<void(Rank&)>& body) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      cudaSetDevice(r);
      Rank rank;
      rank.rank = r;
      cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking);
      ncclConfig_t config = non_blocking();
      rank.settle(ncclCommInitRankConfig(&rank.comm, ranks, id, r, &config));
      rank.settle(ncclInProgress);
      body(rank);
      cudaStreamDestroy(rank.stream);
      if (rank.comm) ncclCommDestroy(rank.comm);
    });
  for (std::thread& t : threads) t.join();
}

template <class T>
T* device(size_t count, const std::function<T(size_t)>& value) {
  void* memory = nullptr;
  cudaMalloc(&memory, std::max<size_t>(1, count * sizeof(T)));
  for (size_t i = 0; i < count; ++i) static_cast<T*>(memory)[i] = value(i);
  return static_cast<T*>(memory);
}

// Of element i: sum over r of (r + 1) * (i % 7) = 6 (i % 7) for three ranks.
template <class T>
void check_sum(ncclDataType_t type) {
  const size_t count = 1001;
  std::vector<std::vector<double>> results(3);
  with_ranks(3, [&](Rank& rank) {
    T* data = device<T>(count, [&](size_t i) {
      return static_cast<T>(static_cast<float>((rank.rank + 1) * static_cast<int>(i % 7)));
    });
    rank.settle(ncclAllReduce(data, data, count, type, ncclSum, rank.comm, rank.stream));
    cudaStreamSynchronize(rank.stream);
    auto& mine = results[static_cast<size_t>(rank.rank)];
    for (size_t i = 0; i < count; ++i) mine.push_back(static_cast<double>(data[i]));
    cudaFree(data);
  });
  for (const auto& result : results) {
    size_t wrong = 0;
    for (size_t i = 0; i < result.size(); ++i)
      wrong += result[i] != 6.0 * static_cast<double>(i % 7);
    CHECK(result.size() == count);
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_CASE("sums of every type over three threads") {
  check_sum<float>(ncclFloat32);
  check_sum<double>(ncclFloat64);
  check_sum<int64_t>(ncclInt64);
  check_sum<int32_t>(ncclInt32);
  check_sum<Eigen::half>(ncclFloat16);
  check_sum<Eigen::bfloat16>(ncclBfloat16);
}

TEST_CASE("large messages in both directions at once do not block each other") {
  // 1 MiB to every rank in two parts, beyond what a ring of the transport holds.
  const size_t count = 1 << 18;
  std::mutex mutex;
  size_t wrong = 0, seen = 0;
  with_ranks(3, [&](Rank& rank) {
    float* send = device<float>(count, [&](size_t) { return static_cast<float>(rank.rank); });
    float* recv = device<float>(3 * count, [](size_t) { return -1.0F; });
    ncclGroupStart();
    for (int peer = 0; peer < 3; ++peer)
      for (size_t half = 0; half < 2; ++half) {
        const size_t at = half * count / 2;
        ncclSend(send + at, count / 2, ncclFloat32, peer, rank.comm, rank.stream);
        ncclRecv(recv + static_cast<size_t>(peer) * count + at, count / 2, ncclFloat32, peer,
                 rank.comm, rank.stream);
      }
    rank.settle(ncclGroupEnd());
    cudaStreamSynchronize(rank.stream);
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < 3 * count; ++i) {
      ++seen;
      wrong += recv[i] != static_cast<float>(i / count);
    }
    cudaFree(send);
    cudaFree(recv);
  });
  CHECK(seen == 9 * count);
  CHECK(wrong == 0);
}

TEST_CASE("a call before the last one is taken is refused; the first one is taken late") {
  std::vector<ncclResult_t> first(2), second(2), third(2);
  with_ranks(2, [&](Rank& rank) {
    const auto me = static_cast<size_t>(rank.rank);
    float* data = device<float>(1, [](size_t) { return 1.0F; });
    first[me] = ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, rank.comm, rank.stream);
    second[me] = ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, rank.comm, rank.stream);
    third[me] = rank.settle(first[me]);
    cudaStreamSynchronize(rank.stream);
    if (data[0] != 2.0F) third[me] = ncclInternalError;
    cudaFree(data);
  });
  for (size_t r = 0; r < 2; ++r) {
    CHECK(first[r] == ncclInProgress);
    CHECK(second[r] == ncclInvalidUsage);
    CHECK(third[r] == ncclSuccess);
  }
}

TEST_CASE("abort ends what waits for a rank that never comes") {
  std::vector<cudaError_t> after(2, cudaErrorUnknown);
  with_ranks(2, [&](Rank& rank) {
    const auto me = static_cast<size_t>(rank.rank);
    float* data = device<float>(1, [](size_t) { return 1.0F; });
    if (rank.rank == 0)
      rank.settle(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, rank.comm, rank.stream));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    after[me] = cudaStreamQuery(rank.stream);
    ncclCommAbort(rank.comm);
    rank.comm = nullptr;
    cudaStreamSynchronize(rank.stream);
    cudaFree(data);
  });
  CHECK(after[0] == cudaErrorNotReady);
  CHECK(after[1] == cudaSuccess);
}
