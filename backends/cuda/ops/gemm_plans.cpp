#include "backends/cuda/ops/gemm_plans.h"

#include <algorithm>
#include <string>

#include "core/base/error.h"

namespace moetwin {

void check_cublas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(ErrorClass::fault,
                std::string(what) + ": cuBLAS status " + std::to_string(static_cast<int>(status)));
}

cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      throw Error(ErrorClass::internal, std::string("no matrix product of ") + dtype_name(dtype));
  }
}

cublasComputeType_t compute_type(DType dtype, bool tf32) {
  return dtype == DType::f32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

namespace {

/// What NVIDIA recommends for Hopper; smaller GPUs take less of it.
constexpr int64_t kWorkspace = int64_t{32} << 20;
/// A model has a few dozen shapes; a program that varies them must not grow without bound.
constexpr size_t kMostPlans = 4096;

/// The largest power of two, up to 256, that divides the address.
uint32_t alignment_of(const void* p) {
  const uint64_t address = reinterpret_cast<uintptr_t>(p) | 256;
  return static_cast<uint32_t>(address & (~address + 1));
}

/// cuBLASLt is column-major. A row-major matrix is the transposed column-major one, so c = a b is
/// done as c' = b' a': its first operand is our b, its m our n.
cublasLtEpilogue_t epilogue_of(const GemmProblem& p) {
  if (p.gelu && p.aux) return p.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  if (p.gelu) return p.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

template <class T>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, T value) {
  check_cublas(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value),
               "attribute of a matrix product");
}
template <class T>
void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
            T value) {
  check_cublas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
               "preference of a matrix product");
}
cublasLtMatrixLayout_t layout(DType type, int64_t columns, int64_t rows) {
  cublasLtMatrixLayout_t made = nullptr;
  check_cublas(cublasLtMatrixLayoutCreate(&made, cuda_type(type), static_cast<uint64_t>(columns),
                                          static_cast<uint64_t>(rows), columns),
               "layout of a matrix");
  return made;
}

}  // namespace

/// Descriptors and the algorithm chosen; without one where the tail cannot be had.
struct GemmPlans::Plan {
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
  int64_t workspace = 0;
  bool found = false;

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    for (cublasLtMatrixLayout_t l : {first, second, result})
      if (l) cublasLtMatrixLayoutDestroy(l);
    if (description) cublasLtMatmulDescDestroy(description);
  }
  void describe(const GemmProblem& p, bool tf32) {
    check_cublas(cublasLtMatmulDescCreate(&description, compute_type(p.type, tf32), CUDA_R_32F),
                 "description of a matrix product");
    set(description, CUBLASLT_MATMUL_DESC_TRANSA,
        static_cast<int32_t>(p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(description, CUBLASLT_MATMUL_DESC_TRANSB,
        static_cast<int32_t>(p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(epilogue_of(p)));
    if (p.bias)
      set(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
          static_cast<int32_t>(cuda_type(p.bias_type)));
    if (p.aux) set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n);
    first = p.transpose_b ? layout(p.type, p.k, p.n) : layout(p.type, p.n, p.k);
    second = p.transpose_a ? layout(p.type, p.m, p.k) : layout(p.type, p.k, p.m);
    result = layout(p.c_type, p.n, p.m);
  }
  /// Pointers of the tail belong to a call, not to a plan; the search reads their alignment.
  void point(const GemmProblem& p) const {
    if (p.bias) set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    if (p.aux) set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux);
  }
  void search(cublasLtHandle_t handle, const GemmProblem& p) {
    cublasLtMatmulPreference_t made = nullptr;
    check_cublas(cublasLtMatmulPreferenceCreate(&made), "preference of a matrix product");
    const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                          cublasStatus_t (*)(cublasLtMatmulPreference_t)>
        preference(made, cublasLtMatmulPreferenceDestroy);
    prefer(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspace));
    // Parts of a product split over k are joined in a step of their own, in fixed order.
    prefer(
        made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_MASK & ~CUBLASLT_REDUCTION_SCHEME_INPLACE));
    prefer(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b));
    prefer(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a));
    prefer(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.c));
    prefer(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.c));
    cublasLtMatmulHeuristicResult_t best = {};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, description, first, second, result, result, made, 1, &best, &count);
    found = status == CUBLAS_STATUS_SUCCESS && count > 0 && best.state == CUBLAS_STATUS_SUCCESS;
    algorithm = best.algo;
    workspace = static_cast<int64_t>(best.workspaceSize);
  }
};

const GemmPlans::Plan& GemmPlans::plan_of(CudaLaunchContext& context, const GemmProblem& p) {
  const auto number = [](auto x) { return static_cast<int64_t>(x); };
  const Key key = {
      p.m,
      p.n,
      p.k,
      number(p.transpose_a) | number(p.transpose_b) << 1 | number(p.gelu) << 2 |
          number(context.tf32) << 3 | number(p.bias != nullptr) << 4 |
          number(p.aux != nullptr) << 5 | number(p.beta != 0) << 6,
      number(p.type) | number(p.c_type) << 8 | number(p.bias_type) << 16,
      number(alignment_of(p.a)) | number(alignment_of(p.b)) << 16 | number(alignment_of(p.c)) << 32,
      number(alignment_of(p.bias)) | number(alignment_of(p.aux)) << 16};
  if (plans_.size() >= kMostPlans && !plans_.contains(key)) plans_.clear();
  std::shared_ptr<const Plan>& kept = plans_[key];
  if (!kept) {
    auto plan = std::make_shared<Plan>();
    plan->describe(p, context.tf32);
    plan->point(p);
    plan->search(context.cublas_lt, p);
    kept = std::move(plan);
  }
  return *kept;
}

bool GemmPlans::run(CudaLaunchContext& context, const GemmProblem& p) {
  const Plan& plan = plan_of(context, p);
  if (!plan.found) {
    if (p.bias || p.gelu) return false;
    throw Error(ErrorClass::fault, "cuBLASLt has no algorithm for a product of " +
                                       std::to_string(p.m) + " x " + std::to_string(p.n) + " x " +
                                       std::to_string(p.k) + " in " + dtype_name(p.type) + " to " +
                                       dtype_name(p.c_type));
  }
  plan.point(p);
  const float alpha = 1;
  void* workspace = plan.workspace > 0 ? context.scratch->take(plan.workspace) : nullptr;
  check_cublas(
      cublasLtMatmul(context.cublas_lt, plan.description, &alpha, p.b, plan.first, p.a, plan.second,
                     &p.beta, p.c, plan.result, p.c, plan.result, &plan.algorithm, workspace,
                     static_cast<size_t>(plan.workspace), context.stream),
      "cublasLtMatmul");
  return true;
}

}  // namespace moetwin
