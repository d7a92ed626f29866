#pragma once
// What the host side of an op is written with.

#include <cstdint>
#include <string>

#include "backends/cuda/device.cuh"
#include "backends/cuda/launch.h"
#include "backends/cuda/ops/functions.h"
#include "backends/cuda/ops/vector.cuh"
#include "core/base/error.h"

namespace moetwin::cuda_ops {

template <class T>
struct TypeTag {
  using type = T;
};
/// Calls f(TypeTag<T>) with the element type of `dtype`.
template <class F>
void with_real(DType dtype, F f) {
  switch (dtype) {
    case DType::f32:
      return f(TypeTag<float>{});
    case DType::bf16:
      return f(TypeTag<bf16>{});
    case DType::f16:
      return f(TypeTag<f16>{});
    default:
      throw Error(ErrorClass::internal, std::string("no kernel for ") + dtype_name(dtype));
  }
}

template <class T>
T* data(const Tensor& t) {
  return t.defined() ? static_cast<T*>(t.data()) : nullptr;
}

/// Whether p can be read `bytes` (a power of two) at a time.
inline bool aligned(const void* p, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) == 0;
}

inline constexpr int kThreads = 256;
/// Reductions over rows are cut into at most so many parts, on every device: sums have one order.
inline constexpr int64_t kParts = 256;
/// Threads of a block that works on rows of n elements, `step` at a time.
inline int row_threads(int64_t n, int step) {
  const int64_t wanted = ((n + step - 1) / step + 31) / 32 * 32;
  return static_cast<int>(wanted < 32 ? 32 : wanted > kThreads ? kThreads : wanted);
}
/// Enough blocks to fill the device several times over; what is left is looped over.
inline int64_t most_blocks(const CudaLaunchContext& context) {
  return int64_t{16} * context.multiprocessors;
}

/// A tensor of a type known when the kernel runs; p is null for an absent one.
inline AnyReal any_real(const Tensor& t) {
  if (!t.defined()) return {nullptr, 0};
  return {t.data(), t.dtype == DType::f32 ? 0 : t.dtype == DType::bf16 ? 1 : 2};
}

template <class T>
T* take(CudaLaunchContext& context, int64_t elements) {
  return static_cast<T*>(context.scratch->take(elements * static_cast<int64_t>(sizeof(T))));
}
inline void clear(CudaLaunchContext& context, void* p, int64_t bytes) {
  if (bytes > 0)
    check_cuda(cudaMemsetAsync(p, 0, static_cast<size_t>(bytes), context.stream),
               "clearing memory");
}

}  // namespace moetwin::cuda_ops
