#include "tests/cuda_on_host/ops/op_backend.h"

#include <cstring>
#include <memory>

#include "backends/cuda/launch.h"
#include "core/base/error.h"

namespace moetwin::cuda_on_host {
namespace {

struct FreePinned {
  void operator()(void* p) const { cudaFreeHost(p); }
};
std::unique_ptr<void, FreePinned> pinned(int64_t bytes) {
  void* p = nullptr;
  check_cuda(cudaHostAlloc(&p, static_cast<size_t>(bytes), cudaHostAllocDefault), "cudaHostAlloc");
  return std::unique_ptr<void, FreePinned>(p);
}

}  // namespace

void* PieceScratch::take(int64_t bytes) {
  void* p = nullptr;
  check_cuda(cudaMalloc(&p, static_cast<size_t>(bytes)), "scratch memory");
  pieces_.push_back(p);
  taken_ += bytes;
  return p;
}
void PieceScratch::reset() {
  for (void* p : pieces_) cudaFree(p);
  pieces_.clear();
  taken_ = 0;
}

OpBackend::OpBackend(bool tf32) {
  properties_.name = "CUDA ops on the host";
  properties_.memory_bytes = int64_t{1} << 32;
  check_cuda(cudaSetDevice(0), "cudaSetDevice");
  check_cuda(cudaStreamCreateWithFlags(&context_.stream, cudaStreamNonBlocking), "stream");
  check_cublas(cublasCreate(&context_.cublas), "cublasCreate");
  check_cublas(cublasSetStream(context_.cublas, context_.stream), "cublasSetStream");
  check_cublas(cublasLtCreate(&context_.cublas_lt), "cublasLtCreate");
  context_.scratch = &scratch_;
  context_.plans = &plans_;
  // Few multiprocessors, so that loops over what a grid leaves are run.
  context_.multiprocessors = 2;
  context_.tf32 = tf32;
}
OpBackend::~OpBackend() {
  cudaStreamSynchronize(context_.stream);
  cublasLtDestroy(context_.cublas_lt);
  cublasDestroy(context_.cublas);
  cudaStreamDestroy(context_.stream);
}

Block OpBackend::reserve(int64_t bytes) {
  void* p = nullptr;
  if (cudaMalloc(&p, static_cast<size_t>(bytes)) != cudaSuccess) return {-1, 0, false};
  blocks_[next_] = p;
  return {next_++, bytes, false};
}
void OpBackend::release(const Block& block) {
  cudaStreamSynchronize(context_.stream);
  cudaFree(blocks_.at(block.id));
  blocks_.erase(block.id);
}
std::shared_ptr<void> OpBackend::storage(const Block& block, int64_t offset, int64_t, MemoryClass) {
  return {std::shared_ptr<void>(), static_cast<char*>(blocks_.at(block.id)) + offset};
}

void OpBackend::launch(const OpCall& call, Stream) {
  launch_cuda_op(call, context_);
  synchronize({0});
  scratch_.reset();
}
void OpBackend::synchronize(Stream) {
  check_cuda(cudaStreamSynchronize(context_.stream), "stream");
}
void OpBackend::write(const Tensor& tensor, const void* host, Stream) {
  if (tensor.bytes() == 0) return;
  const auto staging = pinned(tensor.bytes());
  std::memcpy(staging.get(), host, static_cast<size_t>(tensor.bytes()));
  check_cuda(cudaMemcpyAsync(tensor.data(), staging.get(), static_cast<size_t>(tensor.bytes()),
                             cudaMemcpyHostToDevice, context_.stream),
             "copy to the device");
  synchronize({0});
}
void OpBackend::read(const Tensor& tensor, void* host, Stream) {
  if (tensor.bytes() == 0) return;
  const auto staging = pinned(tensor.bytes());
  check_cuda(cudaMemcpyAsync(staging.get(), tensor.data(), static_cast<size_t>(tensor.bytes()),
                             cudaMemcpyDeviceToHost, context_.stream),
             "copy to the host");
  synchronize({0});
  std::memcpy(host, staging.get(), static_cast<size_t>(tensor.bytes()));
}
std::unique_ptr<Communicator> OpBackend::communicator(const Group&, const std::string&) {
  throw Error(ErrorClass::internal, "this machine is one rank");
}
void OpBackend::abort(const std::string& message) { throw Error(ErrorClass::internal, message); }

}  // namespace moetwin::cuda_on_host
