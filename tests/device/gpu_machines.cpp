// The conformance suite on the first GPU of this machine.

#include <chrono>

#include "backends/cuda/job/rendezvous.h"
#include "backends/cuda/runtime/cuda_backend.h"
#include "tests/conformance/machine.h"

namespace moetwin::conformance {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A job of one rank, which the backend needs before it is made.
struct OneRank {
  OneRank() : store(make_local_store(store_settings())), job(job_settings(), *store, *store) {}
  static StoreSettings store_settings() {
    StoreSettings settings;
    settings.world = 1;
    settings.clock = seconds_now;
    return settings;
  }
  static JobSettings job_settings() {
    JobSettings settings;
    settings.clock = seconds_now;
    return settings;
  }
  std::unique_ptr<Store> store;
  Job job;
};

RankPlace only_rank() {
  RankPlace place;
  place.node_of = {0};
  return place;
}

class Gpu : private OneRank, public CudaBackend {
 public:
  Gpu() : CudaBackend(OneRank::job, only_rank(), {}) {}
};

}  // namespace

std::vector<std::unique_ptr<Machine>> machines_under_test() {
  std::vector<std::unique_ptr<Machine>> machines;
  machines.push_back(
      std::make_unique<Machine>("GPU", std::make_unique<Gpu>(),
                                std::vector<DType>{DType::f32, DType::bf16, DType::f16}, true));
  return machines;
}

}  // namespace moetwin::conformance
