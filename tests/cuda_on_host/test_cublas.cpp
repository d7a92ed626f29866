// The emulated cuBLAS against sums written out here.
#include <cublasLt.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

namespace {

float* on_device(const std::vector<float>& values) {
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, values.size() * sizeof(float)) == cudaSuccess);
  std::copy(values.begin(), values.end(), static_cast<float*>(memory));
  return static_cast<float*>(memory);
}

struct Stream {
  cudaStream_t handle = nullptr;
  Stream() { cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking); }
  ~Stream() { cudaStreamDestroy(handle); }
};

}  // namespace

TEST_CASE("a product is column-major, with transposes and beta") {
  // A = [1 3 5; 2 4 6] (2x3), B = [1 0; 0 1; 1 1] (3x2): AB = [6 8; 8 10].
  const Stream stream;
  cublasHandle_t handle = nullptr;
  cublasCreate(&handle);
  cublasSetStream(handle, stream.handle);
  float *a = on_device({1, 2, 3, 4, 5, 6}), *b = on_device({1, 0, 1, 0, 1, 1}),
        *bt = on_device({1, 0, 0, 1, 1, 1}), *c = on_device({100, 0, 0, 0});
  const float one = 1, zero = 0;
  CHECK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 3, &one, a, CUDA_R_32F, 2, b,
                     CUDA_R_32F, 3, &one, c, CUDA_R_32F, 2, CUBLAS_COMPUTE_32F,
                     CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
  cudaStreamSynchronize(stream.handle);
  CHECK(std::vector<float>(c, c + 4) == std::vector<float>{106, 8, 8, 10});
  CHECK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_T, 2, 2, 3, &one, a, CUDA_R_32F, 2, bt,
                     CUDA_R_32F, 2, &zero, c, CUDA_R_32F, 2, CUBLAS_COMPUTE_32F,
                     CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
  cudaStreamSynchronize(stream.handle);
  CHECK(std::vector<float>(c, c + 4) == std::vector<float>{6, 8, 8, 10});
  CHECK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 3, &one, a, CUDA_R_32F, 1, b,
                     CUDA_R_32F, 3, &one, c, CUDA_R_32F, 2, CUBLAS_COMPUTE_32F,
                     CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_INVALID_VALUE);
  cublasDestroy(handle);
  for (float* p : {a, b, bt, c}) cudaFree(p);
}

TEST_CASE("groups of different sizes, an empty one among them") {
  const Stream stream;
  cublasHandle_t handle = nullptr;
  cublasCreate(&handle);
  cublasSetStream(handle, stream.handle);
  float *a = on_device({1, 2, 3}), *b = on_device({10, 20}), *c = on_device({0, 0, 0});
  void *pa = nullptr, *pb = nullptr, *pc = nullptr;
  for (void** table : {&pa, &pb, &pc}) cudaMalloc(table, 3 * sizeof(void*));
  // (1x1)(1x1), a product of no rows, (2x1)(1x1).
  float* as[3] = {a, a, a + 1};
  float* bs[3] = {b, b, b + 1};
  float* cs[3] = {c, c, c + 1};
  std::copy(as, as + 3, static_cast<float**>(pa));
  std::copy(bs, bs + 3, static_cast<float**>(pb));
  std::copy(cs, cs + 3, static_cast<float**>(pc));
  const cublasOperation_t none[3] = {CUBLAS_OP_N, CUBLAS_OP_N, CUBLAS_OP_N};
  const int m[3] = {1, 0, 2}, n[3] = {1, 1, 1}, k[3] = {1, 1, 1}, lda[3] = {1, 1, 2},
            ldb[3] = {1, 1, 1}, ldc[3] = {1, 1, 2}, sizes[3] = {1, 1, 1};
  const float ones[3] = {1, 1, 1}, zeros[3] = {0, 0, 0};
  CHECK(cublasGemmGroupedBatchedEx(handle, none, none, m, n, k, ones,
                                   static_cast<const void* const*>(pa), CUDA_R_32F, lda,
                                   static_cast<const void* const*>(pb), CUDA_R_32F, ldb, zeros,
                                   static_cast<void* const*>(pc), CUDA_R_32F, ldc, 3, sizes,
                                   CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_SUCCESS);
  cudaStreamSynchronize(stream.handle);
  CHECK(std::vector<float>(c, c + 3) == std::vector<float>{10, 40, 60});
  cublasDestroy(handle);
}

TEST_CASE("cuBLASLt adds the bias by row, keeps what GELU gets, and applies GELU") {
  const Stream stream;
  cublasLtHandle_t handle = nullptr;
  cublasLtCreate(&handle);
  float *a = on_device({1, -1}), *b = on_device({2, 3}), *d = on_device({0, 0, 0, 0}),
        *bias = on_device({0.5F, 0.25F}), *aux = on_device(std::vector<float>(16));
  cublasLtMatrixLayout_t la, lb, ld;
  cublasLtMatrixLayoutCreate(&la, CUDA_R_32F, 2, 1, 2);
  cublasLtMatrixLayoutCreate(&lb, CUDA_R_32F, 1, 2, 1);
  cublasLtMatrixLayoutCreate(&ld, CUDA_R_32F, 2, 2, 2);
  cublasLtMatmulDesc_t op;
  cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const uint32_t epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  int64_t ld_aux = 2;
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    CHECK(cublasLtMatmulDescSetAttribute(op, attribute, &value, sizeof value) ==
          CUBLAS_STATUS_SUCCESS);
  };
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld_aux);
  const float one = 1, zero = 0;
  const auto run = [&] {
    return cublasLtMatmul(handle, op, &one, a, la, b, lb, &zero, d, ld, d, ld, nullptr, nullptr, 0,
                          stream.handle);
  };
  CHECK(run() == CUBLAS_STATUS_NOT_SUPPORTED);  // the leading dimension of aux is a multiple of 8
  ld_aux = 8;
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld_aux);
  REQUIRE(run() == CUBLAS_STATUS_SUCCESS);
  cudaStreamSynchronize(stream.handle);
  const double before[4] = {2.5, -1.75, 3.5, -2.75};
  for (int i = 0; i < 4; ++i) {
    CHECK(aux[i / 2 * 8 + i % 2] == static_cast<float>(before[i]));
    const double x = before[i];
    const double gelu =
        0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    CHECK(d[i] == Approx(gelu).margin(1e-6));
  }
  cublasLtMatmulDescDestroy(op);
  for (const cublasLtMatrixLayout_t layout : {la, lb, ld}) cublasLtMatrixLayoutDestroy(layout);
  cublasLtDestroy(handle);
}
