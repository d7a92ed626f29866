#include "tests/cuda_on_host/runtime/gemm.h"

#include <Eigen/Core>
#include <cmath>
#include <cstring>
#include <vector>

namespace moetwin::emulated {
namespace {

// op(matrix) of `rows` x `columns`, widened.
template <class T, class S>
void widen(const S* data, int64_t ld, bool transpose, int64_t rows, int64_t columns, T* out) {
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i)
      out[j * rows + i] = static_cast<T>(transpose ? data[i * ld + j] : data[j * ld + i]);
}

template <class T>
std::vector<T> widened(const void* data, cudaDataType type, int64_t ld, bool transpose,
                       int64_t rows, int64_t columns) {
  std::vector<T> out(static_cast<size_t>(rows * columns));
  switch (type) {
    case CUDA_R_32F:
      widen(static_cast<const float*>(data), ld, transpose, rows, columns, out.data());
      break;
    case CUDA_R_64F:
      widen(static_cast<const double*>(data), ld, transpose, rows, columns, out.data());
      break;
    case CUDA_R_16F:
      widen(static_cast<const Eigen::half*>(data), ld, transpose, rows, columns, out.data());
      break;
    default:
      widen(static_cast<const Eigen::bfloat16*>(data), ld, transpose, rows, columns, out.data());
  }
  return out;
}

template <class T>
void compute_in(const Product& p) {
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
  const auto a = widened<T>(p.a, p.a_type, p.lda, p.transpose_a, p.m, p.k);
  const auto b = widened<T>(p.b, p.b_type, p.ldb, p.transpose_b, p.k, p.n);
  Matrix product(p.m, p.n);
  product.noalias() =
      Eigen::Map<const Matrix>(a.data(), p.m, p.k) * Eigen::Map<const Matrix>(b.data(), p.k, p.n);
  for (int64_t j = 0; j < p.n; ++j)
    for (int64_t i = 0; i < p.m; ++i) {
      T value = static_cast<T>(p.alpha) * product(i, j);
      if (p.beta != 0)
        value += static_cast<T>(p.beta) * static_cast<T>(load(p.c, j * p.ldc + i, p.c_type));
      if (p.bias) value += static_cast<T>(load(p.bias, i, p.bias_type));
      if (p.aux) store(p.aux, j * p.ld_aux + i, p.aux_type, value);
      if (p.gelu) {
        const T inner = static_cast<T>(0.7978845608028654) *
                        (value + static_cast<T>(0.044715) * value * value * value);
        value = static_cast<T>(0.5) * value * (1 + std::tanh(inner));
      }
      store(p.d, j * p.ldd + i, p.d_type, value);
    }
}

}  // namespace

size_t size_of(cudaDataType type) {
  return type == CUDA_R_64F || type == CUDA_R_64I   ? 8
         : type == CUDA_R_32F || type == CUDA_R_32I ? 4
                                                    : 2;
}

bool is_real(cudaDataType type) { return type != CUDA_R_32I && type != CUDA_R_64I; }

double load(const void* data, int64_t index, cudaDataType type) {
  switch (type) {
    case CUDA_R_32F:
      return static_cast<const float*>(data)[index];
    case CUDA_R_64F:
      return static_cast<const double*>(data)[index];
    case CUDA_R_16F:
      return static_cast<float>(static_cast<const Eigen::half*>(data)[index]);
    default:
      return static_cast<float>(static_cast<const Eigen::bfloat16*>(data)[index]);
  }
}

void store(void* data, int64_t index, cudaDataType type, double value) {
  switch (type) {
    case CUDA_R_32F:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      break;
    case CUDA_R_64F:
      static_cast<double*>(data)[index] = value;
      break;
    case CUDA_R_16F:
      static_cast<Eigen::half*>(data)[index] = Eigen::half(static_cast<float>(value));
      break;
    default:
      static_cast<Eigen::bfloat16*>(data)[index] = Eigen::bfloat16(static_cast<float>(value));
  }
}

bool supported(cudaDataType a, cudaDataType b, cudaDataType c, cublasComputeType_t compute) {
  if (a != b || !is_real(a) || !is_real(c)) return false;
  switch (compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      return a != CUDA_R_64F && (c == a || c == CUDA_R_32F);
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
      return a == CUDA_R_32F && c == CUDA_R_32F;
    case CUBLAS_COMPUTE_64F:
      return a == CUDA_R_64F && c == CUDA_R_64F;
    default:
      return false;
  }
}

void compute(const Product& p) {
  if (p.m == 0 || p.n == 0) return;
  if (p.in_double)
    compute_in<double>(p);
  else
    compute_in<float>(p);
}

}  // namespace moetwin::emulated
