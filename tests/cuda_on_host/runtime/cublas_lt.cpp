#include <cublasLt.h>

#include <algorithm>
#include <cstring>

#include "tests/cuda_on_host/runtime/gemm.h"
#include "tests/cuda_on_host/runtime/memory.h"
#include "tests/cuda_on_host/runtime/stream.h"

using namespace moetwin::emulated;

struct cublasLtContext {};
struct cublasLtMatrixLayoutOpaque {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t ld;
  int32_t batch = 1;
  int64_t stride = 0;
};
struct cublasLtMatmulDescOpaque {
  cublasComputeType_t compute;
  cudaDataType scale;
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  int64_t ld_aux = 0;
  int32_t bias_type = -1, aux_type = -1;
};
struct cublasLtMatmulPreferenceOpaque {
  uint64_t workspace = 0;
};

namespace {

template <class T>
cublasStatus_t read(T& into, const void* buffer, size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&into, buffer, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

bool has(uint32_t epilogue, uint32_t bit) {
  return epilogue != CUBLASLT_EPILOGUE_DEFAULT && (epilogue & bit);
}

cudaDataType type_or(int32_t type, cudaDataType otherwise) {
  return type < 0 ? otherwise : static_cast<cudaDataType>(type);
}

// What cuBLASLt would say to this product.
cublasStatus_t check(const cublasLtMatmulDescOpaque& op, const cublasLtMatrixLayoutOpaque& a,
                     const cublasLtMatrixLayoutOpaque& b, const cublasLtMatrixLayoutOpaque& c,
                     const cublasLtMatrixLayoutOpaque& d) {
  const bool ta = op.transpose_a != CUBLAS_OP_N, tb = op.transpose_b != CUBLAS_OP_N;
  const uint64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
  if (m != d.rows || k != (tb ? b.columns : b.rows) || d.columns != (tb ? b.rows : b.columns) ||
      c.rows != d.rows || c.columns != d.columns)
    return CUBLAS_STATUS_INVALID_VALUE;
  for (const auto* layout : {&a, &b, &c, &d})
    if (layout->ld < static_cast<int64_t>(layout->rows)) return CUBLAS_STATUS_INVALID_VALUE;
  if (a.batch != 1 || c.type != d.type || !supported(a.type, b.type, d.type, op.compute) ||
      op.scale != (op.compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (has(op.epilogue, 4) && type_or(op.bias_type, d.type) != d.type &&
      type_or(op.bias_type, d.type) != a.type)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (has(op.epilogue, 128)) {
    if (op.ld_aux % 8 != 0 || op.ld_aux < static_cast<int64_t>(d.rows))
      return CUBLAS_STATUS_NOT_SUPPORTED;
    if (type_or(op.aux_type, d.type) != d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (reinterpret_cast<uintptr_t>(op.aux) % 16 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

bool on_device(const void* data, const cublasLtMatrixLayoutOpaque& layout) {
  if (layout.rows == 0 || layout.columns == 0) return true;
  const auto elements = static_cast<size_t>(layout.ld) * (layout.columns - 1) + layout.rows;
  return place_of(data, elements * size_of(layout.type)) == Place::device;
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  *layout = new cublasLtMatrixLayoutOpaque{type, rows, columns, ld};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* buffer, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return read(layout->rows, buffer, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return read(layout->columns, buffer, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return read(layout->ld, buffer, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return read(layout->batch, buffer, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return read(layout->stride, buffer, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* descriptor,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  *descriptor = new cublasLtMatmulDescOpaque;
  (*descriptor)->compute = compute;
  (*descriptor)->scale = scale;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
  delete descriptor;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t op,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* buffer, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return read(op->transpose_a, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return read(op->transpose_b, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return read(op->epilogue, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return read(op->bias, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return read(op->bias_type, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return read(op->aux, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return read(op->ld_aux, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return read(op->aux_type, buffer, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* buffer, size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    return read(preference->workspace, buffer, bytes);
  uint32_t ignored = 0;
  return read(ignored, buffer, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* returned) {
  *returned = 0;
  const cublasStatus_t status = check(*operation, *a, *b, *c, *d);
  if (status) return status;
  if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  results[0] = {};
  // Some, so that a caller must have it, and little, since all of it is filled with NaN.
  results[0].workspaceSize = std::min<uint64_t>(preference->workspace, 4096);
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *returned = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* A, cublasLtMatrixLayout_t a, const void* B,
                              cublasLtMatrixLayout_t b, const void* beta, const void* C,
                              cublasLtMatrixLayout_t c, void* D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t*, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  const cublasLtMatmulDescOpaque& op = *operation;
  if (const cublasStatus_t status = check(op, *a, *b, *c, *d)) return status;
  Product p;
  p.transpose_a = op.transpose_a != CUBLAS_OP_N;
  p.transpose_b = op.transpose_b != CUBLAS_OP_N;
  p.m = static_cast<int64_t>(d->rows), p.n = static_cast<int64_t>(d->columns);
  p.k = static_cast<int64_t>(p.transpose_a ? a->rows : a->columns);
  p.in_double = op.compute == CUBLAS_COMPUTE_64F;
  p.alpha = p.in_double ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  p.beta = p.in_double ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  p.a = A, p.b = B, p.c = C, p.d = D;
  p.a_type = a->type, p.b_type = b->type, p.c_type = c->type, p.d_type = d->type;
  p.lda = a->ld, p.ldb = b->ld, p.ldc = c->ld, p.ldd = d->ld;
  if (has(op.epilogue, 4)) p.bias = op.bias;
  p.bias_type = type_or(op.bias_type, d->type);
  if (has(op.epilogue, 128)) p.aux = op.aux;
  p.aux_type = type_or(op.aux_type, d->type);
  p.ld_aux = op.ld_aux;
  p.gelu = has(op.epilogue, 32);
  if (!on_device(A, *a) || !on_device(B, *b) || !on_device(D, *d) ||
      (p.beta != 0 && !on_device(C, *c)) ||
      (p.bias && place_of(p.bias, d->rows * size_of(p.bias_type)) != Place::device) ||
      (workspace_bytes && place_of(workspace, workspace_bytes) != Place::device))
    return CUBLAS_STATUS_INVALID_VALUE;
  return enqueue(stream, "cublasLtMatmul", [p] { compute(p); }) ? CUBLAS_STATUS_EXECUTION_FAILED
                                                                : CUBLAS_STATUS_SUCCESS;
}
