#pragma once
// One matrix product as cuBLAS defines it: column-major, C = alpha op(A) op(B) + beta C. Operands
// are widened to what the product is computed in, and rounded once on the way out.

#include <cublas_v2.h>

namespace moetwin::emulated {

size_t size_of(cudaDataType type);
bool is_real(cudaDataType type);
double load(const void* data, int64_t index, cudaDataType type);
void store(void* data, int64_t index, cudaDataType type, double value);

struct Product {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  double alpha = 1, beta = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;  ///< read when beta is not 0
  void* d = nullptr;
  cudaDataType a_type = CUDA_R_32F, b_type = CUDA_R_32F, c_type = CUDA_R_32F, d_type = CUDA_R_32F;
  int64_t lda = 0, ldb = 0, ldc = 0, ldd = 0;
  bool in_double = false;
  // What follows the product, element by element, in f32: bias by row of D, the value before GELU
  // to aux, GELU (tanh form).
  const void* bias = nullptr;
  cudaDataType bias_type = CUDA_R_32F;
  void* aux = nullptr;
  cudaDataType aux_type = CUDA_R_32F;
  int64_t ld_aux = 0;
  bool gelu = false;
};

void compute(const Product& product);
/// Whether cuBLAS computes this combination (of those that the backend may ask for).
bool supported(cudaDataType a, cudaDataType b, cudaDataType c, cublasComputeType_t compute);

}  // namespace moetwin::emulated
