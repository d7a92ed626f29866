#pragma once
// Matrix products through cuBLASLt: which algorithm a product of some shape runs is asked once and
// kept.

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "backends/cuda/ops/table.h"
#include "core/ops/gemm.h"

namespace moetwin {

/// c = tail(op(a) op(b) + bias) + beta c, row-major: a [m,k] (or [k,m] transposed), b [k,n] (or
/// [n,k]), c [m,n], without gaps.
struct GemmProblem {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  DType type = DType::f32;    ///< of a and b
  DType c_type = DType::f32;  ///< of c and aux
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  float beta = 0;              ///< 0 or 1
  const void* bias = nullptr;  ///< [n] of type bias_type; null: none
  DType bias_type = DType::f32;
  bool gelu = false;    ///< the tanh form, which is the one cuBLASLt has
  void* aux = nullptr;  ///< gets the value before gelu
};

class GemmPlans {
 public:
  GemmPlans() = default;
  GemmPlans(const GemmPlans&) = delete;
  GemmPlans& operator=(const GemmPlans&) = delete;

  /// Enqueues the product. False: cuBLASLt has no algorithm with this tail (nothing was enqueued);
  /// a product without bias and gelu always runs or throws Error(fault).
  bool run(CudaLaunchContext& context, const GemmProblem& problem);
  int64_t size() const { return static_cast<int64_t>(plans_.size()); }

 private:
  struct Plan;
  using Key = std::vector<int64_t>;
  const Plan& plan_of(CudaLaunchContext& context, const GemmProblem& problem);
  std::map<Key, std::shared_ptr<const Plan>> plans_;
};

/// Throws Error(fault) naming the call.
void check_cublas(cublasStatus_t status, const char* what);
cudaDataType_t cuda_type(DType dtype);
/// fp32 sums everywhere; fp32 products in TF32 where asked for.
cublasComputeType_t compute_type(DType dtype, bool tf32);

}  // namespace moetwin
