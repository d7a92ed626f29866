// Stands in for the CUDA backend in a build without CUDA.
#include "backends/cuda/cluster.h"
#include "core/base/error.h"

namespace moetwin {

std::unique_ptr<CudaCluster> make_cuda_cluster(const Scenario&, const CudaOptions&) {
  throw Error(ErrorClass::configuration,
              "--backend cuda: this program was built without CUDA. To get it, install the CUDA "
              "toolkit (12.5 or later) and NCCL (2.20 or later) with their headers on the machine "
              "where moetwin is built, put nvcc on the PATH, and build anew: rm -rf build && "
              "./moetwin --help. The build says \"CUDA backend: yes\" when it found them; "
              "`moetwin doctor` says what is there. Without a GPU use --backend sim");
}

bool built_with_cuda() { return false; }

}  // namespace moetwin
