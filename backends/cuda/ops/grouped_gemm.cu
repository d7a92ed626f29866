// grouped_gemm, grouped_gemm_weight_grad: one grouped cuBLAS call for all experts, each with its
// own row count. It takes one type for all matrices; with fp32 results of 16-bit products the
// groups run one by one.

#include <algorithm>

#include "backends/cuda/ops/epilogue.h"
#include "backends/cuda/ops/gemm_plans.h"
#include "backends/cuda/ops/host.h"
#include "backends/cuda/ops/upload.h"
#include "core/ops/gemm.h"

namespace moetwin::cuda_ops {
namespace {

/// The products of one call, in the row-major sense of GemmProblem; empty ones are left out.
using Products = std::vector<GemmProblem>;

/// cuBLAS counts in ints.
int narrow(int64_t x) {
  if (x > 0x7fffffff) throw Error(ErrorClass::internal, "an extent of a product beyond 2^31");
  return static_cast<int>(x);
}
int64_t address(const void* p) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(p)); }

void run_grouped(CudaLaunchContext& context, const Products& products) {
  const GemmProblem& any = products.front();
  const size_t count = products.size();
  // cuBLAS is column-major: c' = b' a' (see gemm_plans.cpp).
  const std::vector<cublasOperation_t> first(count, any.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  const std::vector<cublasOperation_t> second(count, any.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  std::vector<int> m, n, k, ld_first, ld_second, ld_result;
  std::vector<int64_t> pointers(3 * count);
  for (size_t i = 0; i < count; ++i) {
    const GemmProblem& p = products[i];
    m.push_back(narrow(p.n));
    n.push_back(narrow(p.m));
    k.push_back(narrow(p.k));
    ld_first.push_back(narrow(p.transpose_b ? p.k : p.n));
    ld_second.push_back(narrow(p.transpose_a ? p.m : p.k));
    ld_result.push_back(narrow(p.n));
    pointers[i] = address(p.b);
    pointers[count + i] = address(p.a);
    pointers[2 * count + i] = address(p.c);
  }
  const std::vector<float> alpha(count, 1.0f), beta(count, any.beta);
  const std::vector<int> ones(count, 1);
  void** table = reinterpret_cast<void**>(upload(context, pointers));
  check_cublas(
      cublasGemmGroupedBatchedEx(
          context.cublas, first.data(), second.data(), m.data(), n.data(), k.data(), alpha.data(),
          table, cuda_type(any.type), ld_first.data(), table + count, cuda_type(any.type),
          ld_second.data(), beta.data(), table + 2 * count, cuda_type(any.c_type), ld_result.data(),
          narrow(static_cast<int64_t>(count)), ones.data(), compute_type(any.type, context.tf32)),
      "cublasGemmGroupedBatchedEx");
}

void run_one_by_one(CudaLaunchContext& context, const Products& products) {
  const float alpha = 1;
  for (const GemmProblem& p : products)
    check_cublas(cublasGemmEx(context.cublas, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                              p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, narrow(p.n), narrow(p.m),
                              narrow(p.k), &alpha, p.b, cuda_type(p.type),
                              narrow(p.transpose_b ? p.k : p.n), p.a, cuda_type(p.type),
                              narrow(p.transpose_a ? p.m : p.k), &p.beta, p.c, cuda_type(p.c_type),
                              narrow(p.n), compute_type(p.type, context.tf32), CUBLAS_GEMM_DEFAULT),
                 "cublasGemmEx");
}

void run_products(CudaLaunchContext& context, const Products& products) {
  if (products.empty()) return;
  if (products.front().type == products.front().c_type) return run_grouped(context, products);
  run_one_by_one(context, products);
}

const char* at(const Tensor& t, int64_t elements) {
  return static_cast<const char*>(t.data()) + elements * dtype_size(t.dtype);
}

}  // namespace

void grouped_gemm(const OpCall& call, CudaLaunchContext& context) {
  const auto attr = call.get<GroupedGemmAttr>();
  const Tensor& c = call[3];
  const int64_t k = call[0].shape[1], n = c.shape[1];
  Products products;
  int64_t row = 0;
  for (size_t g = 0; g < call.sizes->size(); ++g) {
    const int64_t rows = (*call.sizes)[g];
    GemmProblem p;
    p.m = rows;
    p.n = n;
    p.k = k;
    p.transpose_b = attr.transpose_b;
    p.type = call[0].dtype;
    p.c_type = c.dtype;
    p.a = at(call[0], row * k);
    p.b = at(call[1], static_cast<int64_t>(g) * k * n);
    p.c = const_cast<char*>(at(c, row * n));
    if (rows > 0 && n > 0) products.push_back(p);
    row += rows;
  }
  if (k > 0)
    run_products(context, products);
  else
    clear(context, c.data(), row * n * dtype_size(c.dtype));
  finish_product(context, c, call[2], call[4], attr.epilogue, *call.sizes);
}

void grouped_gemm_weight_grad(const OpCall& call, CudaLaunchContext& context) {
  const int64_t k = call[0].shape[1], n = call[1].shape[1];
  Products products;
  int64_t row = 0;
  for (size_t g = 0; g < call.sizes->size(); ++g) {
    const int64_t rows = (*call.sizes)[g];
    GemmProblem p;
    p.m = k;
    p.n = n;
    p.k = rows;
    p.transpose_a = true;
    p.type = call[0].dtype;
    p.c_type = call[2].dtype;
    p.beta = 1;
    p.a = at(call[0], row * k);
    p.b = at(call[1], row * n);
    p.c = const_cast<char*>(at(call[2], static_cast<int64_t>(g) * k * n));
    if (rows > 0 && k > 0 && n > 0) products.push_back(p);
    row += rows;
  }
  run_products(context, products);
}

}  // namespace moetwin::cuda_ops
