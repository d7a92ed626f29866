#pragma once
// One real GPU and the host thread that drives it.

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "backends/cuda/job/job.h"
#include "backends/cuda/ops/gemm_plans.h"
#include "backends/cuda/ops/table.h"
#include "backends/cuda/runtime/events.h"
#include "backends/cuda/runtime/nccl_group.h"
#include "backends/cuda/runtime/scratch.h"
#include "backends/cuda/runtime/staging.h"
#include "backends/cuda/runtime/timeline.h"
#include "backends/cuda/runtime/traffic.h"
#include "core/device/backend.h"

namespace moetwin {

/// Where a rank is.
struct RankPlace {
  int64_t rank = 0, world = 1;
  int device = 0;
  std::vector<int64_t> node_of;  ///< by world rank
};

struct CudaSettings {
  DType dtype = DType::f32;  ///< the scenario's compute dtype
  bool tf32 = false;
  bool poison = false;               ///< memory.poison: new buffers are NaN
  bool compare_collectives = false;  ///< before each collective, over the store
  int64_t ranks_on_device = 1;       ///< that share its memory
};

/// Made, used and ended by one thread, but for what the watchdog calls. take_profile is collective:
/// the members of every communicator call it after the same calls, and share how long each took.
class CudaBackend : public Backend, public WatchedRank {
 public:
  CudaBackend(Job& job, RankPlace place, CudaSettings settings);
  ~CudaBackend() override;

  const DeviceProperties& properties() const override { return properties_; }
  bool supports(const Op& op) const override;
  Block reserve(int64_t bytes) override;
  void release(const Block& block) override;
  std::shared_ptr<void> storage(const Block& block, int64_t offset, int64_t bytes,
                                MemoryClass memory_class) override;
  Stream stream(const char* name) override;
  void launch(const OpCall& call, Stream stream) override;
  Event record(Stream stream) override;
  void wait(Stream stream, Event event) override;
  void synchronize(Stream stream) override;
  void write(const Tensor& tensor, const void* host, Stream stream) override;
  void read(const Tensor& tensor, void* host, Stream stream) override;
  double now() override { return job_.now(); }
  void host_work(double seconds, Activity activity) override;
  void phase(Phase phase, const char* label) override;
  Profile take_profile(bool detailed) override;
  std::unique_ptr<Communicator> communicator(const Group& group, const std::string& name) override;
  [[noreturn]] void abort(const std::string& message) override;

  // For the watchdog.
  CallLog& log() override { return log_; }
  std::optional<std::string> look() override;
  void abort_calls() override;

  /// One member's side of a collective, from its communicator.
  void collective(NcclGroup& group, const CollectiveCall& call, Stream stream);
  /// One member's side of a collective that is no part of the program, on a stream of its own.
  void aside(NcclGroup& group, const CollectiveCall& call, EventPool& events, cudaStream_t stream);
  /// A communicator is there, or gone.
  void add(NcclGroup& group);
  void forget(NcclGroup& group);
  Job& job() { return job_; }
  /// The program has returned: waits for all that was launched.
  void finish();

 private:
  struct StreamState {
    cudaStream_t stream = nullptr;
    std::string name;
    cublasHandle_t cublas = nullptr;  ///< made at the first op
    void* cublas_workspace = nullptr;
    std::unique_ptr<StreamScratch> scratch;
  };
  StreamState& state(Stream stream);
  void prepare_for_ops(StreamState& state);
  void wait_for(cudaStream_t stream);
  Timeline::Shortest share_durations();
  uint64_t note(NcclGroup& group, const CollectiveCall& call, std::string sizes, int32_t stream);
  const char* keep(const std::string& name);

  Job& job_;
  const RankPlace place_;
  const CudaSettings settings_;
  DeviceProperties properties_;
  int multiprocessors_ = 1;
  CallLog log_;
  EventPool events_;
  Timeline timeline_;
  Staging staging_;
  TrafficLog traffic_;
  std::vector<StreamState> streams_;
  cublasLtHandle_t cublas_lt_ = nullptr;
  GemmPlans plans_;
  KernelList kernels_;
  std::map<int64_t, std::shared_ptr<void>> blocks_;
  int64_t reserved_ = 0, next_block_ = 0, order_ = 0;
  std::deque<std::shared_ptr<CUevent_st>> recorded_;
  int64_t first_event_ = 0;
  int ranges_ = 0;  ///< NVTX ranges that are open

  std::mutex groups_mutex_;  ///< the watchdog reads the list
  std::vector<NcclGroup*> groups_;
  std::set<std::string> names_;  ///< of communicators; intervals point to them
  std::map<std::string, int> same_name_;
  cudaStream_t exchange_ = nullptr;  ///< for share_durations
  std::unique_ptr<StreamScratch> exchange_memory_;
};

}  // namespace moetwin
