#include <cublas_v2.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "tests/cuda_on_host/runtime/gemm.h"
#include "tests/cuda_on_host/runtime/memory.h"
#include "tests/cuda_on_host/runtime/stream.h"

using namespace moetwin::emulated;

struct cublasContext {
  cudaStream_t stream = nullptr;
};

namespace {

double scalar(const void* value, cublasComputeType_t compute, int64_t index = 0) {
  return compute == CUBLAS_COMPUTE_64F ? static_cast<const double*>(value)[index]
                                       : static_cast<const float*>(value)[index];
}

bool legal(const Product& p) {
  const auto fits = [](int64_t ld, int64_t rows) { return ld >= std::max<int64_t>(1, rows); };
  return p.m >= 0 && p.n >= 0 && p.k >= 0 && fits(p.lda, p.transpose_a ? p.k : p.m) &&
         fits(p.ldb, p.transpose_b ? p.n : p.k) && fits(p.ldc, p.m);
}

// All of the operands in device memory: cuBLAS would read whatever it is given.
bool on_device(const Product& p) {
  const auto check = [](const void* data, int64_t ld, int64_t rows, int64_t columns,
                        cudaDataType type) {
    if (rows <= 0 || columns <= 0) return true;
    return place_of(data, size_of(type) * static_cast<size_t>(ld * (columns - 1) + rows)) ==
           Place::device;
  };
  if (p.m == 0 || p.n == 0) return true;
  return check(p.a, p.lda, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.a_type) &&
         check(p.b, p.ldb, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.b_type) &&
         check(p.d, p.ldd, p.m, p.n, p.d_type);
}

cublasStatus_t put(cudaStream_t stream, const char* what, std::function<void()> work) {
  return enqueue(stream, what, std::move(work)) ? CUBLAS_STATUS_EXECUTION_FAILED
                                                : CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t, void* workspace, size_t bytes) {
  return bytes == 0 || place_of(workspace, bytes) == Place::device ? CUBLAS_STATUS_SUCCESS
                                                                   : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasSetPointerMode(cublasHandle_t, cublasPointerMode_t mode) {
  return mode == CUBLAS_POINTER_MODE_HOST ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasGetVersion(cublasHandle_t, int* version) {
  *version = 130000;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "unknown cuBLAS status";
}

const char* cublasGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void* alpha,
                            const void* A, cudaDataType Atype, int lda, const void* B,
                            cudaDataType Btype, int ldb, const void* beta, void* C,
                            cudaDataType Ctype, int ldc, cublasComputeType_t compute_type,
                            cublasGemmAlgo_t algo) {
  return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B,
                                    Btype, ldb, 0, beta, C, Ctype, ldc, 0, 1, compute_type, algo);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const void* alpha, const void* A, cudaDataType Atype,
                                          int lda, long long strideA, const void* B,
                                          cudaDataType Btype, int ldb, long long strideB,
                                          const void* beta, void* C, cudaDataType Ctype, int ldc,
                                          long long strideC, int batchCount,
                                          cublasComputeType_t compute_type, cublasGemmAlgo_t) {
  if (!supported(Atype, Btype, Ctype, compute_type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  Product p;
  p.transpose_a = transa != CUBLAS_OP_N;
  p.transpose_b = transb != CUBLAS_OP_N;
  p.m = m, p.n = n, p.k = k;
  p.alpha = scalar(alpha, compute_type), p.beta = scalar(beta, compute_type);
  p.a_type = Atype, p.b_type = Btype, p.c_type = p.d_type = Ctype;
  p.lda = lda, p.ldb = ldb, p.ldc = p.ldd = ldc;
  p.in_double = compute_type == CUBLAS_COMPUTE_64F;
  std::vector<Product> products;
  for (int64_t i = 0; i < batchCount; ++i) {
    p.a = static_cast<const char*>(A) + i * strideA * static_cast<int64_t>(size_of(Atype));
    p.b = static_cast<const char*>(B) + i * strideB * static_cast<int64_t>(size_of(Btype));
    p.d = static_cast<char*>(C) + i * strideC * static_cast<int64_t>(size_of(Ctype));
    p.c = p.d;
    if (!legal(p) || !on_device(p)) return CUBLAS_STATUS_INVALID_VALUE;
    products.push_back(p);
  }
  return put(handle->stream, "cublasGemm", [products = std::move(products)] {
    for (const Product& one : products) compute(one);
  });
}

cublasStatus_t cublasGemmGroupedBatchedEx(
    cublasHandle_t handle, const cublasOperation_t transa_array[],
    const cublasOperation_t transb_array[], const int m_array[], const int n_array[],
    const int k_array[], const void* alpha_array, const void* const Aarray[], cudaDataType_t Atype,
    const int lda_array[], const void* const Barray[], cudaDataType_t Btype, const int ldb_array[],
    const void* beta_array, void* const Carray[], cudaDataType_t Ctype, const int ldc_array[],
    int group_count, const int group_size[], cublasComputeType_t compute_type) {
  if (Ctype != Atype || Atype == CUDA_R_64F || !supported(Atype, Btype, Ctype, compute_type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  std::vector<Product> products;
  for (int g = 0; g < group_count; ++g) {
    Product p;
    p.transpose_a = transa_array[g] != CUBLAS_OP_N;
    p.transpose_b = transb_array[g] != CUBLAS_OP_N;
    p.m = m_array[g], p.n = n_array[g], p.k = k_array[g];
    p.alpha = scalar(alpha_array, compute_type, g), p.beta = scalar(beta_array, compute_type, g);
    p.a_type = Atype, p.b_type = Btype, p.c_type = p.d_type = Ctype;
    p.lda = lda_array[g], p.ldb = ldb_array[g], p.ldc = p.ldd = ldc_array[g];
    if (!legal(p)) return CUBLAS_STATUS_INVALID_VALUE;
    for (int i = 0; i < group_size[g]; ++i) products.push_back(p);
  }
  const size_t table = products.size() * sizeof(void*);
  for (const void* pointers : {static_cast<const void*>(Aarray), static_cast<const void*>(Barray),
                               static_cast<const void*>(Carray)})
    if (table && place_of(pointers, table) != Place::device) return CUBLAS_STATUS_INVALID_VALUE;
  return put(handle->stream, "cublasGemmGroupedBatched", [=, all = std::move(products)]() mutable {
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].a = Aarray[i];
      all[i].b = Barray[i];
      all[i].c = all[i].d = Carray[i];
      if (!on_device(all[i])) throw std::runtime_error("an operand is not in device memory");
      compute(all[i]);
    }
  });
}
