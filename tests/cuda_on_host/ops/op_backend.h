#pragma once
// The least of a backend that runs the CUDA ops: one stream, no collectives. It writes and reads
// through pinned memory, as the emulated runtime demands.

#include <map>

#include "backends/cuda/ops/gemm_plans.h"
#include "backends/cuda/ops/table.h"
#include "core/device/backend.h"

namespace moetwin::cuda_on_host {

/// Pieces of device memory, each with NaN before it is given out and alone in its allocation, so
/// that AddressSanitizer sees accesses beyond it.
class PieceScratch : public Scratch {
 public:
  ~PieceScratch() override { reset(); }
  void* take(int64_t bytes) override;
  /// The stream has been waited for.
  void reset();
  int64_t taken() const { return taken_; }

 private:
  std::vector<void*> pieces_;
  int64_t taken_ = 0;
};

class OpBackend : public Backend {
 public:
  explicit OpBackend(bool tf32 = false);
  ~OpBackend() override;

  const DeviceProperties& properties() const override { return properties_; }
  bool supports(const Op& op) const override { return find_cuda_kernel(op) != nullptr; }
  Block reserve(int64_t bytes) override;
  void release(const Block& block) override;
  std::shared_ptr<void> storage(const Block& block, int64_t offset, int64_t bytes,
                                MemoryClass memory_class) override;
  Stream stream(const char*) override { return {0}; }
  void launch(const OpCall& call, Stream stream) override;
  Event record(Stream) override { return {0}; }
  void wait(Stream, Event) override {}
  void synchronize(Stream stream) override;
  void write(const Tensor& tensor, const void* host, Stream stream) override;
  void read(const Tensor& tensor, void* host, Stream stream) override;
  double now() override { return 0; }
  void host_work(double, Activity) override {}
  void phase(Phase, const char*) override {}
  Profile take_profile(bool) override { return {}; }
  std::unique_ptr<Communicator> communicator(const Group&, const std::string&) override;
  [[noreturn]] void abort(const std::string& message) override;

 private:
  DeviceProperties properties_;
  PieceScratch scratch_;
  GemmPlans plans_;
  CudaLaunchContext context_;
  int64_t next_ = 0;
  std::map<int64_t, void*> blocks_;
};

}  // namespace moetwin::cuda_on_host
