#pragma once
// An op as the machines see it: a description (what is read and written, attributes), never code.
// CUDA looks its kernel up in a table; the modelled GPU prices the description and runs the op's
// reference arithmetic.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "core/device/kernel_class.h"
#include "core/device/tensor.h"

namespace moetwin {

enum class Access : uint8_t { read, write, read_write };

struct Operand {
  const char* name;
  Access access;
  bool optional = false;
};

/// What a kernel does, as far as its time is concerned.
enum class KernelKind : uint8_t {
  gemm,
  grouped_gemm,
  attention,
  elementwise,
  reduction,
  gather,
  sort,
  optimizer,
  copy
};

/// One kernel an op stands for.
struct KernelWork {
  KernelKind kind = KernelKind::elementwise;
  DType dtype = DType::f32;  ///< of the arithmetic
  double flop = 0;           ///< a multiply-add is 2
  double bytes = 0;          ///< read and written from device memory, each operand once
  int64_t m = 0, n = 0,
          k = 0;      ///< of a matrix product; m is the largest group's rows for grouped_gemm
  int64_t batch = 1;  ///< products or groups
  /// grouped_gemm: rows of each group; owned by the call.
  const std::vector<int64_t>* group_rows = nullptr;
  /// attention: m queries and n keys of a head of k; `flop` counts the causal half where it is.
  AttentionKernel attention = AttentionKernel::flash;
  bool causal = false;
  bool fp8 = false;  ///< gemm: operands are FP8
};
using KernelList = std::vector<KernelWork>;

struct OpCall;

/// One row of the op table (core/ops/table.h).
struct Op {
  const char* name;
  int index;  ///< position in the table; reference tables have the same order
  std::span<const Operand> operands;
  /// Shape and dtype rule; throws Error(internal) naming op, operand and shapes.
  void (*check)(const OpCall&);
  /// Appends the kernels that this call stands for.
  void (*kernels)(const OpCall&, const KernelChoice& kernels, KernelList& out);
  /// Bytes of scratch memory the op needs while it runs.
  int64_t (*workspace)(const OpCall&);
  /// Bytes that these kernels keep for the backward beside the call's own operands; null: none.
  int64_t (*saved)(const OpCall&, const KernelChoice& kernels) = nullptr;
};

inline constexpr int kMaxOperands = 10;
using HostSizes = std::shared_ptr<const std::vector<int64_t>>;

/// Dtypes: gradients of parameters (d_table, d_gamma, d_bias, d_b, c of a weight-gradient gemm,
/// optimizer state) are real_dtype of the activations; parameters have the activations' dtype, but
/// for the router's, which are real_dtype.
struct OpCall {
  const Op* op = nullptr;
  int count = 0;  ///< operands in use; absent optional ones are undefined tensors
  std::array<Tensor, kMaxOperands> tensors;
  alignas(8) std::array<std::byte, 128> attributes{};
  HostSizes
      sizes;  ///< sizes known on the host only (rows of each group, segments); null where none

  template <class Attr>
  void set(const Attr& attr) {
    static_assert(std::is_trivially_copyable_v<Attr> && sizeof(Attr) <= 128);
    std::memcpy(attributes.data(), &attr, sizeof(Attr));
  }
  template <class Attr>
  Attr get() const {
    Attr attr;
    std::memcpy(&attr, attributes.data(), sizeof(Attr));
    return attr;
  }
  const Tensor& operator[](int i) const { return tensors[static_cast<size_t>(i)]; }
};

/// Builds a call from its operands in table order and checks it.
template <class Attr>
OpCall make_call(const Op& op, std::initializer_list<Tensor> operands, const Attr& attr,
                 HostSizes sizes = nullptr) {
  OpCall call;
  call.op = &op;
  for (const Tensor& t : operands) call.tensors[static_cast<size_t>(call.count++)] = t;
  call.set(attr);
  call.sizes = std::move(sizes);
  op.check(call);
  return call;
}
struct NoAttr {};

/// A tensor as reference arithmetic sees it: host memory. data is null for an absent operand or one
/// without storage.
struct TensorView {
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::f32;
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

struct ReferenceCall {
  const Op* op = nullptr;
  std::array<TensorView, kMaxOperands> tensors;
  alignas(8) std::array<std::byte, 128> attributes{};
  HostSizes sizes;
  template <class Attr>
  Attr get() const {
    Attr attr;
    std::memcpy(&attr, attributes.data(), sizeof(Attr));
    return attr;
  }
  const TensorView& operator[](int i) const { return tensors[static_cast<size_t>(i)]; }
};
using Reference = void (*)(const ReferenceCall&);

}  // namespace moetwin
